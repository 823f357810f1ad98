"""The command line: spellings, near misses, help and exit codes of wrong usage."""

from __future__ import annotations

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from tests.unit.ctl.harness import FakeScheduler, ask, call

pytestmark = pytest.mark.slow

VERBS = (
    "apply", "get", "list", "nodes", "workloads", "describe", "explain", "events", "summary",
    "logs", "exec", "top", "start", "stop", "retry", "delete", "node", "volume", "drift",
    "version",
)  # fmt: skip

NODE_VERBS = tuple(
    f"node {verb}"
    for verb in "status cordon uncordon drain undrain taint untaint label fence remove".split()
)
VOLUME_VERBS = ("volume list", "volume release")


def scheduler() -> FakeScheduler:
    """One workload and one node."""
    return FakeScheduler(
        workloads={"web": pb.WorkloadView(workload_id="web", status="Running")},
        nodes={"n1": pb.NodeView(node_id="n1", status="Ready")},
    )


@pytest.mark.parametrize(
    "line",
    [
        "list workloads",
        "list workload",
        "ls workloads",
        "workloads",
        "get workloads",
        "get wl",
        "get workload web",
        "get workload/web",
        "get WORKLOAD web",
    ],
)
@pytest.mark.asyncio
async def test_spellings_of_workloads(line: str) -> None:
    """Singular, plural and short forms mean the same."""
    result = await ask(scheduler(), *line.split())
    assert result.code == ExitCode.DONE
    assert result.out.splitlines()[1].startswith("web ")


@pytest.mark.parametrize("line", ["list nodes", "list node", "nodes", "get nodes", "get node n1"])
@pytest.mark.asyncio
async def test_spellings_of_nodes(line: str) -> None:
    """The same holds for nodes."""
    result = await ask(scheduler(), *line.split())
    assert result.code == ExitCode.DONE
    assert result.out.splitlines()[1].startswith("n1 ")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("aply -f x", "did you mean 'apply'?"),
        ("evnts", "did you mean 'events'?"),
        ("list nods", "did you mean 'nodes'?"),
        ("get workloud web", "did you mean 'workload'?"),
        ("events --folow", "did you mean '--follow'?"),
        ("list nodes -o jsn", "did you mean 'json'?"),
        ("node cordn n1", "did you mean 'cordon'?"),
        ("node drian n1", "did you mean 'drain'?"),
        ("node drain", "required: ID"),
        ("node drain n1 --force", "give --deadline as well"),
        ("node drain n1 --deadline 10ms", "1s at least"),
        ("node drain n1 --deadline soon", "not a duration"),
        ("node taint n1", "KEY[=VALUE][:EFFECT]"),
        ("node taint n1 =x", "'=x' is no taint"),
        ("node taint n1 gpu:NoExecut", "did you mean 'NoExecute'?"),
        ("node taint n1 gpu:", "'' is no effect of a taint"),
        ("node untaint n1 gpu=a", "write 'gpu', without a value"),
        ("node label n1", "KEY=VALUE|KEY-"),
        ("node label n1 rack", "write KEY=VALUE to set it, KEY- to remove it"),
        ("node label n1 a=1 =x", "'=x' has no key"),
        ("node label n1 a=1 a-", "label 'a' is written twice"),
        ("", "required: VERB"),
        ("apply", "required: -f/--file"),
        ("delete web", "'web' is no kind"),
        ("delete", "write either"),
        ("delete workload", "which workload?"),
        ("delete workload web -f x", "write either"),
        ("delete node n1", "'node' is no kind; write workload"),
        ("describe workload", "one workload id is wanted; none was given"),
        ("describe workload a b", "one workload id is wanted; 2 were given"),
        ("list workloads/web", "write: persysctl get workload web"),
        ("list nodes --node n1", "persysctl get node ID"),
        ("list nodes --timeout soon", "not a duration"),
        ("list nodes --timeout 0", "must be more than nothing"),
        ("list nodes --timeout 5x", "no unit of time"),
        ("list nodes --server http://x", "without a scheme"),
        ("list nodes --request-id ä", "visible ASCII"),
        ("apply -f /nonexistent/a.yaml", "nothing was sent"),
    ],
)
@pytest.mark.asyncio
async def test_wrong_usage(line: str, part: str) -> None:
    """Wrong usage ends with 3, says what was wrong, and asks nobody."""
    fake = scheduler()
    result = await ask(fake, *line.split())
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert part in result.err
    assert "Traceback" not in result.err
    assert (result.out, fake.asked) == ("", [])


@pytest.mark.parametrize("verb", ["", *VERBS, *NODE_VERBS, *VOLUME_VERBS])
@pytest.mark.asyncio
async def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb has a help with its usage, and examples where there is anything to choose."""
    with pytest.raises(SystemExit) as caught:
        await call(*verb.split(), "--help")
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert text.startswith(f"usage: persysctl {verb}".rstrip())
    assert "--server HOST:PORT" in text
    assert verb == "version" or f"  persysctl {verb}".rstrip() in text


@pytest.mark.asyncio
async def test_help_names_every_verb_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of the whole lists the verbs and what the exit codes mean."""
    with pytest.raises(SystemExit):
        await call("--help")
    text = capsys.readouterr().out
    assert [verb for verb in VERBS if f"    {verb} " not in text] == []
    assert [str(int(code)) for code in ExitCode if f"\n  {int(code)}  " not in text] == []


@pytest.mark.parametrize("line", ["-o json list nodes", "list nodes -o json", "list -o json nodes"])
@pytest.mark.asyncio
async def test_shared_options_before_and_after(line: str) -> None:
    """Shared options may stand before or after the verb."""
    result = await ask(scheduler(), *line.split())
    assert result.out.startswith("{")


@pytest.mark.asyncio
async def test_request_id_is_passed_on() -> None:
    """A request id reaches the scheduler; without one, one is made up."""
    fake = scheduler()
    await ask(fake, "list", "nodes", "--request-id", "abc")
    await ask(fake, "list", "nodes")
    assert fake.request_ids[0] == "abc"
    assert fake.request_ids[1].startswith("ctl-")


@pytest.mark.asyncio
async def test_version_asks_nobody() -> None:
    """The version is shown whatever the settings for a server are."""
    result = await call("version", environ={"PERSYS_SERVER": "far.example:1"})
    assert (result.code, result.out.split()[0]) == (ExitCode.DONE, "persysctl")


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["apply", "-f", ""], "-f/--file: is empty"),
        (["apply", "-f", " "], "-f/--file: is empty"),
        (["list", "nodes", "--server", ""], "--server: is empty"),
        (["list", "nodes", "--ca-file", ""], "--ca-file: is empty"),
        (["list", "nodes", "--timeout", "-3s"], "'-3s' is negative; write a duration like 30s"),
        (["list", "nodes", "--timeout=-3s"], "'-3s' is negative; write a duration like 30s"),
        (["list", "nodes", "--timeout", "-.5"], "'-.5' is negative"),
        (["get", "workload", "a\udcff"], "argument 3 is not UTF-8 text: 'a\\udcff'"),
    ],
)
@pytest.mark.asyncio
async def test_values_that_mean_nothing(argv: list[str], part: str) -> None:
    """Empty, negative and unreadable values are wrong usage, said in words that name them."""
    result = await call(*argv)
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert part in result.err
    assert result.out == ""
