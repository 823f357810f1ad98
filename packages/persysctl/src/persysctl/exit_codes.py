"""What the process tells its caller. Scripts rely on these numbers; they never change.

Decided here: the numbers. Which outcome means which number is decided by the commands.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """The end of one call of persysctl."""

    DONE = 0
    FAILED = 1
    """Refused, not found, or the workload itself failed."""
    NOT_YET = 2
    """The time ran out, or the workload still waits."""
    USAGE_OR_CONNECTION = 3
    """Nothing was asked of a scheduler: bad arguments, a bad manifest, or no connection."""
    EXEC_FAILED = 125
    """`exec` itself failed, in whatever way; its other codes are those of the command."""
    INTERRUPTED = 130
    """Ctrl-C."""
