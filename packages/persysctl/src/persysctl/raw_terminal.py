"""A terminal handed over to a command: every key goes to it, Ctrl-C too.

Decided here: that the terminal is given back as it was whatever ends us, a signal included.
"""

from __future__ import annotations

import asyncio
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["raw_terminal"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def raw_terminal(number: int) -> Iterator[None]:
    """While inside, the terminal open as ``number`` is raw. Belongs to a running event loop."""
    loop, before = asyncio.get_running_loop(), termios.tcgetattr(number)

    def restore() -> None:
        termios.tcsetattr(number, termios.TCSADRAIN, before)

    def end(by: signal.Signals) -> None:
        restore()
        loop.remove_signal_handler(by)
        signal.raise_signal(by)

    for each in _ENDING:
        loop.add_signal_handler(each, end, each)
    try:
        tty.setraw(number, termios.TCSADRAIN)
        yield
    finally:
        restore()
        for each in _ENDING:
            loop.remove_signal_handler(each)
