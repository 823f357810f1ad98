"""The command line as a whole: which verbs there are, and what the help says.

Decided here: the list of verbs and its order. Each verb's arguments are its own file's.
"""

from __future__ import annotations

import argparse

from persysctl.arguments import CtlParser, Verbs, shared_options
from persysctl.commands import (
    acknowledge,
    apply,
    delete,
    describe,
    diff,
    drift,
    events,
    exec_,
    explain,
    get,
    import_,
    logs,
    node,
    plan,
    retry,
    start,
    stop,
    summary,
    top,
    version,
    volume,
)
from persysctl.commands import (
    list as list_,
)

__all__ = ["build_parser"]

_EPILOG = """\
examples:
  persysctl apply -f web.yaml --wait        create it and wait until it runs
  persysctl plan -f web.yaml                what that would do, without doing it
  persysctl list workloads --status Pending what waits
  persysctl explain big                     why it waits, in numbers
  persysctl events --follow                 what happens, as it happens
  persysctl logs web --follow               what it writes, wherever it runs
  persysctl exec web -i -t -- sh            a shell inside it
  persysctl top --watch                     what everything uses
  persysctl node drain n1 --wait            take a node out of service

exit codes:
  0  done
  1  refused, not found, or the workload failed
  2  not in time, still pending, or a drain is blocked (with --wait);
     plan: cannot be placed now; import: recovery goes on
  3  wrong usage, wrong manifest, or no connection
  125  exec itself failed; its other codes are the command's
  130  Ctrl-C
  diff ends like diff(1): 0 no difference, 1 differences, 2 not everything could be compared

Manifests are described in docs/manifests.md. NO_COLOR turns colours off.
"""
_VERBS = (
    apply, plan, diff, get, list_, describe, explain, events, summary, logs, exec_, top,
    start, stop, retry, delete, node, volume, drift, import_, acknowledge, version,
)  # fmt: skip


def build_parser() -> CtlParser:
    """The parser of persysctl; a parsed verb has its coroutine under ``run``."""
    shared = shared_options()
    parser = CtlParser(
        prog="persysctl",
        usage="persysctl VERB … [options]",
        description="Command line client of the Persys control plane.",
        epilog=_EPILOG,
        parents=[shared],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"persysctl {version.own_version()}")
    verbs = Verbs(parser, shared)
    for verb in _VERBS:
        verb.add(verbs)
    return parser
