"""`persysctl version`: what is installed. No scheduler is asked."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version

import grpc

from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.tables import pairs_table

__all__ = ["add", "own_version"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add("version", "Show what is installed; no scheduler is asked.", run=_run)
    parser.set_defaults(offline=True)


def own_version() -> str:
    """The version of persysctl; a checkout that is not installed has none."""
    try:
        return version("persysctl")
    except PackageNotFoundError:
        return "unknown"


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    values = {
        "persysctl": own_version(),
        "api": "persys.control.v1",
        "grpc": str(grpc.__version__),
        "python": platform.python_version(),
    }
    context.output.show(values, lambda: [pairs_table(values.items())])
    return ExitCode.DONE
