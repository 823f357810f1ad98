"""`persys-server`: the first thing that runs.

Decided here: that `run` may be told to end from the first moment on, also while its libraries are
still loading, which takes a second or two. Hence nothing that takes long is imported above.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Without ``arguments`` it is the process's own."""
    if arguments is None:
        arguments = sys.argv[1:]
        if arguments[:1] == ["run"]:
            _end_when_told()
    started: Callable[[Sequence[str]], int] = import_module("persys_server.commands").main
    return started(arguments)


def _end_when_told() -> None:
    """Until ``run`` has handlers of its own: nothing is open yet that would have to be closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
