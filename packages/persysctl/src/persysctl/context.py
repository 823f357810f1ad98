"""What a command is given: a scheduler to ask, a place to answer, and the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from google.protobuf.message import Message

from persysctl.client import Client
from persysctl.output.terminal import Output

__all__ = ["Context"]

_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Context:
    """One call of persysctl. ``timeout`` is ``None`` where none was given."""

    client: Client
    output: Output
    stdin: TextIO
    now: Callable[[], datetime]
    timeout: float | None = None

    @property
    def wait_seconds(self) -> float:
        """How long ``--wait`` waits."""
        return _WAIT_SECONDS if self.timeout is None else self.timeout

    def warn_if_stale(self, response: Message) -> None:
        """Say beside an answer that the scheduler cannot vouch for it."""
        if getattr(response, "stale", False):
            seconds = getattr(response, "age_seconds", 0.0)
            self.output.terminal.note(
                "warning: this may be out of date: the scheduler has lost its store"
                f" (last current {seconds:.0f} s ago)"
            )
