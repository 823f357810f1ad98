"""Options stand anywhere: before, between and behind the names that a verb takes."""

from __future__ import annotations

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.errors import UsageError
from persysctl.exit_codes import ExitCode
from persysctl.parser import build_parser
from persysctl.word_order import options_first
from tests.unit.ctl.harness import FakeScheduler, ask

_CALLS = (
    ("delete", "workload a b c", ("--wait", "--force", "--timeout 5s", "-o json")),
    ("get", "workload a", ("--status Running", "-o wide", "--insecure")),
    ("describe", "workload a", ("-o json", "--timeout 5s")),
    ("explain", "workload a", ("-o json",)),
    ("start", "workload a", ("--wait", "--timeout 5s")),
    ("stop", "workload a", ("--wait", "-s h:1")),
    ("retry", "workload a", ("--discard-local",)),
    ("list", "workloads", ("--node n1", "--status=Running")),
    ("top", "nodes", ("-o json",)),
    ("logs", "a", ("--tail 5", "-f", "--timestamps")),
    ("node label", "n1 a=1 b=2 c-", ("-o json", "--insecure")),
    ("node taint", "n1 gpu=a:NoSchedule", ("-o json",)),
    ("node drain", "n1", ("--wait", "--timeout 5s")),
    ("volume list", "", ("--node n1", "--workload a")),
)


@pytest.mark.parametrize(("verb", "names", "options"), _CALLS, ids=[each[0] for each in _CALLS])
def test_the_place_of_an_option_means_nothing(
    verb: str, names: str, options: tuple[str, ...]
) -> None:
    """Each option at each place among the names says the same."""
    words = names.split()
    for option in options:
        behind = build_parser().parse_args([*verb.split(), *words, *option.split()])
        for place in range(len(words)):
            argv = [*verb.split(), *words[:place], *option.split(), *words[place:]]
            assert vars(build_parser().parse_args(argv)) == vars(behind), argv


@pytest.mark.slow
@pytest.mark.asyncio
async def test_several_are_deleted_with_the_option_first() -> None:
    """`delete workload --wait a b` deletes both, and waits."""
    views = {name: pb.WorkloadView(workload_id=name, status="Running") for name in "ab"}
    result = await ask(FakeScheduler(workloads=views), *"delete workload --wait a b".split())
    assert result.code == ExitCode.DONE, result.err
    assert result.out.splitlines()[:2] == ["a is being deleted", "b is being deleted"]


def test_a_command_is_left_as_it_is() -> None:
    """What stands behind -- is the command's, options and all."""
    args = build_parser().parse_args(["exec", "-i", "web", "-t", "--", "ls", "--wait", "-o", "x"])
    assert (args.workload, args.stdin, args.tty) == ("web", True, True)
    assert args.command == ["ls", "--wait", "-o", "x"]


def test_names_behind_the_end_of_options() -> None:
    """Behind -- a word is a name, whatever it begins with."""
    args = build_parser().parse_args(["delete", "workload", "--wait", "--", "-a", "--force"])
    assert (args.target, args.wait, args.force) == (["workload", "-a", "--force"], True, False)


@pytest.mark.parametrize("argv", ["delete workload a --timeout", "logs --tail -- a", "logs a -o"])
def test_a_missing_value_takes_no_name(argv: str) -> None:
    """An option without its value is told, and takes none of the other words."""
    with pytest.raises(UsageError, match="expected one argument"):
        build_parser().parse_args(argv.split())


def test_what_is_not_known_stays_where_it_is_told() -> None:
    """A slip is told as one, wherever it stands."""
    with pytest.raises(UsageError, match=r"--wiat.*did you mean '--wait'\?"):
        build_parser().parse_args("delete workload --wiat a b".split())


def test_short_options_together() -> None:
    """Short options may stand together; the last may have its value with it or next to it."""
    options = build_parser().parse_args  # the whole line, since letters belong to verbs
    args = options("exec -it web -- sh".split())
    assert (args.stdin, args.tty, args.workload) == (True, True, "web")
    assert options("logs -fojson web".split()).output == "json"
    assert options_first(["-", "a"], {}) == ["-", "a"]
