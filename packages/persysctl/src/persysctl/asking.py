"""Asking a person before something that cannot be taken back.

Decided here: that a script has to say ``--yes`` itself, and that silence means no.
"""

from __future__ import annotations

import argparse

from persysctl.context import Context
from persysctl.errors import RefusedError, UsageError

__all__ = ["add_yes_option", "require_yes"]


def add_yes_option(parser: argparse._ActionsContainer) -> None:
    """``--yes``."""
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def require_yes(context: Context, args: argparse.Namespace, question: str) -> None:
    """Return where it is to be done. Raises RefusedError for a no, and UsageError where nobody can
    be asked."""
    if args.yes:
        return
    if not context.stdin.isatty():
        raise UsageError("nothing was done: this asks first, and here is nobody to ask; give --yes")
    terminal = context.output.terminal
    terminal.err.write(f"{question} [y/N] ")
    terminal.err.flush()
    if context.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was done")
