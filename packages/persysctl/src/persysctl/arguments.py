"""How arguments are read: the parser's errors, shared options, kinds and durations.

Decided here: what every verb has in common. Which verbs there are is decided by ``parser``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias, TypeVar

from persysctl.context import Context
from persysctl.errors import UsageError
from persysctl.exit_codes import ExitCode
from persysctl.manifest.units import parse_duration_seconds
from persysctl.output.structured import OutputFormat
from persysctl.suggest import did_you_mean
from persysctl.word_order import options_first

__all__ = [
    "Command",
    "CtlParser",
    "Verbs",
    "add_agent_options",
    "add_wait_options",
    "duration",
    "example_count",
    "filled",
    "kind_and_ids",
    "one_id",
    "option",
    "plan_revision",
    "shared_options",
]

Command: TypeAlias = Callable[[Context, argparse.Namespace], Awaitable[int]]

NODE_WORDS = ("node", "nodes")
WORKLOAD_WORDS = ("workload", "workloads", "wl")
_UNRECOGNIZED = "unrecognized arguments: "

OptionT = TypeVar("OptionT")


class CtlParser(argparse.ArgumentParser):
    """A parser whose errors are ours, with the nearest known word."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # So that the value of `--timeout -3s` comes to the option, which says what is wrong.
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self.takes_command = False
        """What stands behind ``--`` is somebody else's command line: it comes out as ``command``,
        untouched."""
        self.failure_code: ExitCode | None = None
        """Ends the process with this code where the arguments are wrong; else 3 does."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, with options anywhere, and except for a verb that takes a command."""
        words = list(args or ())
        if self._subparsers is not None:
            return super().parse_known_args(words, namespace)
        if not self.takes_command:
            return super().parse_known_args(self._in_order(words), namespace)
        end = words.index("--") if "--" in words else len(words)
        found, unknown = super().parse_known_args(words[:end], namespace)
        if unknown:
            self.error(_UNRECOGNIZED + " ".join(unknown))
        found.command = words[end + 1 :]
        if not found.command:
            self.error("the command is missing; write it behind --")
        return found, []

    def _in_order(self, words: Sequence[str]) -> list[str]:
        try:
            return options_first(words, self._option_string_actions)
        except argparse.ArgumentError as error:
            self.error(str(error))

    def error(self, message: str) -> NoReturn:
        """Raise UsageError: what is wrong, a near miss, and how it is used."""
        text = message
        if message.startswith(_UNRECOGNIZED):
            first = message.removeprefix(_UNRECOGNIZED).split()[0]
            text = f"{message}{did_you_mean(first.partition('=')[0], _all_options(self))}"
        error = UsageError(f"{text}\n{self.format_usage().rstrip()}\nmore: {self.prog} --help")
        error.exit_code = self.failure_code or error.exit_code
        raise error

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = list(action.choices or ())
        if action.choices is not None and value not in choices:
            known = ", ".join(map(str, choices))
            hint = did_you_mean(str(value), map(str, choices))
            raise argparse.ArgumentError(action, f"{value!r} is not one of {known}{hint}")


def _all_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every option of the parser and of its verbs."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _all_options(verb)


def duration(text: str) -> float:
    """The type of options that take a span of time: positive seconds."""
    try:
        seconds = parse_duration_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not 0 < seconds <= 86400 * 365:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than nothing, at most a year")
    return seconds


def filled(text: str) -> str:
    """The type of options that mean nothing when they are empty, such as an unset ``"$FILE"``."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; give a value, or leave the option out")
    return text


def example_count(text: str) -> int:
    """The type of the option that asks for so many example nodes per reason."""
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 9999")
    return int(text)


def plan_revision(text: str) -> int:
    """The type of the option that holds an apply to a plan: a store revision, 0 for none."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a revision; `persysctl plan` prints it")
    return int(text)


def shared_options() -> CtlParser:
    """Options that stand before or after the verb; absent ones leave no trace."""
    shared = CtlParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = shared.add_argument_group("connection and output")
    group.add_argument(
        "-s",
        "--server",
        type=filled,
        metavar="HOST:PORT",
        help="the scheduler (PERSYS_SERVER; localhost:8085)",
    )
    group.add_argument(
        "--insecure", action="store_true", help="plain text, no certificates (PERSYS_INSECURE)"
    )
    group.add_argument(
        "--ca-file", type=filled, metavar="PEM", help="whom to trust (PERSYS_CA_FILE)"
    )
    group.add_argument(
        "--cert-file", type=filled, metavar="PEM", help="our certificate (PERSYS_CERT_FILE)"
    )
    group.add_argument("--key-file", type=filled, metavar="PEM", help="its key (PERSYS_KEY_FILE)")
    group.add_argument(
        "--server-name",
        type=filled,
        metavar="NAME",
        help="the name in its certificate (PERSYS_SERVER_NAME)",
    )
    group.add_argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        help="how long to wait, such as 30s or 2m (15s for an answer, 60s with --wait)",
    )
    group.add_argument(
        "--request-id", metavar="ID", help="found again in the scheduler's log (made up)"
    )
    group.add_argument(
        "-o",
        "--output",
        choices=[str(each) for each in OutputFormat],
        metavar="FORMAT",
        help="table, wide, json or yaml",
    )
    return shared


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """What verbs take that speak to agents themselves."""
    parser.add_argument(
        "--agent-server-name",
        type=filled,
        metavar="NAME",
        help="the name in agents' certificates (PERSYS_AGENT_SERVER_NAME; the host dialled)",
    )


def option(args: argparse.Namespace, name: str, kind: type[OptionT]) -> OptionT | None:
    """The value of a shared option; ``None`` where it was not given."""
    value = getattr(args, name, None)
    return value if isinstance(value, kind) else None


def add_wait_options(parser: argparse.ArgumentParser, until: str) -> None:
    """``--wait``; how long is said by the shared ``--timeout``."""
    parser.add_argument("--wait", action="store_true", help=f"return when {until} (or exit code 2)")


class Verbs:
    """The verbs of one level; each has the shared options and names the coroutine to run."""

    def __init__(self, parser: CtlParser, shared: CtlParser) -> None:
        self._shared = shared
        self._parsers = parser.add_subparsers(
            title="verbs", metavar="VERB", required=True, parser_class=CtlParser, prog=parser.prog
        )

    def add(
        self,
        name: str,
        summary: str,
        *,
        usage: str = "",
        details: str = "",
        run: Command | None = None,
        examples: Sequence[str] = (),
        aliases: Sequence[str] = (),
    ) -> CtlParser:
        """A parser for one verb; ``run`` is ``None`` for a verb that has verbs of its own.

        ``usage`` is what stands after the verb, without the shared options; ``details`` are the
        lines of its help that follow the summary.
        """
        lines = ["examples:", *(f"  {_as_call(example)}" for example in examples)]
        parser = self._parsers.add_parser(
            name,
            help=summary,
            usage=f"%(prog)s {usage} [options]".replace("  ", " "),
            description=f"{summary}\n\n{details}" if details else summary,
            epilog="\n".join(lines) if examples else None,
            parents=[self._shared],
            aliases=list(aliases),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        assert isinstance(parser, CtlParser)
        if run is not None:
            parser.set_defaults(run=run)
        return parser

    def below(self, parser: CtlParser) -> Verbs:
        """The verbs under one of ours."""
        return Verbs(parser, self._shared)


def _as_call(example: str) -> str:
    """An example as it is typed; one that begins with another program stands as it is."""
    return example if " | " in example else f"persysctl {example}"


def kind_and_ids(words: Sequence[str], kinds: Sequence[str]) -> tuple[str, list[str]]:
    """``node`` or ``workload``, and the ids after it; also ``workload/web``.

    Raises UsageError for a kind that is not in ``kinds``.
    """
    first, slash, rest = words[0].partition("/")
    ids = ([rest] if slash else []) + list(words[1:])
    known = [word for kind in kinds for word in _words_of(kind)]
    for kind in kinds:
        if first.lower() in _words_of(kind):
            return kind, ids
    raise UsageError(
        f"{first!r} is no kind; write {' or '.join(kinds)} and then the id"
        f"{did_you_mean(first, known)}"
    )


def one_id(kind: str, ids: Sequence[str]) -> str:
    """The one id that was given. Raises UsageError for none or several."""
    if len(ids) != 1:
        given = f"{len(ids)} were given" if ids else "none was given"
        raise UsageError(f"one {kind} id is wanted; {given}")
    return ids[0]


def _words_of(kind: str) -> tuple[str, ...]:
    return NODE_WORDS if kind == "node" else WORKLOAD_WORDS
