"""The entry point of the process: its streams and environment in, its exit code out.

Decided here: what an interrupt and a reader that went away mean. Everything else is ``session``'s.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from persysctl.exit_codes import ExitCode

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run persysctl with the arguments of the process (or ``argv``); the answer is its code."""
    # gRPC reads this when it is imported; what it would tell people, our errors tell better.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from persysctl.session import Surroundings, run  # noqa: PLC0415

    # A process that was started without standard input has none to read.
    here = Surroundings(sys.stdin or io.StringIO(), sys.stdout, sys.stderr, os.environ, Path.home())
    try:
        return asyncio.run(run(sys.argv[1:] if argv is None else argv, here))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not complain at its end.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
