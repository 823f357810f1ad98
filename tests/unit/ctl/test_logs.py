"""`persysctl logs`: whom it asks, where the lines go, and what is said where there are none."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import grpc
import pytest
import trustme

from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from persysctl.output.log_lines import harmless
from tests.unit.ctl.agents import FakeAgent, a_second_after, line, serving, with_web
from tests.unit.ctl.harness import Refusal, Result, ask, call, served

pytestmark = pytest.mark.slow


async def logs(agent: FakeAgent, *argv: str, terminal: bool = False) -> Result:
    """One call of `logs web`."""
    async with serving(agent) as endpoint:
        return await ask(with_web(endpoint), "logs", "web", *argv, terminal=terminal)


@pytest.mark.asyncio
async def test_each_stream_to_its_own() -> None:
    """Standard error goes to standard error; output and console go to standard output."""
    agent = FakeAgent(
        [line("ready"), line("oh no", stream="stderr"), line("login:", stream="console")]
    )
    result = await logs(agent)
    assert result == Result(ExitCode.DONE, "ready\nlogin:\n", "oh no\n")
    assert agent.asked == [wire.StreamLogsRequest(id="web", tail=50)]


@pytest.mark.parametrize(
    ("tail", "shown"), [("2", ["3", "4"]), ("0", []), ("all", ["1", "2", "3", "4"])]
)
@pytest.mark.asyncio
async def test_the_last_lines(tail: str, shown: list[str]) -> None:
    """--tail says how many, none and all included."""
    result = await logs(FakeAgent([line(each) for each in "1234"]), "--tail", tail)
    assert result.out.split() == shown


@pytest.mark.parametrize("tail", ["-1", "x", "1.5", "99999999999"])
@pytest.mark.asyncio
async def test_no_number_of_lines(tail: str) -> None:
    """What is no number of lines is wrong usage."""
    result = await call("logs", "web", f"--tail={tail}")
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert "is no number of lines" in result.err


@pytest.mark.asyncio
async def test_timestamps() -> None:
    """They are in UTC to the millisecond; an instant that is not known, or cannot be, is a dash."""
    agent = FakeAgent([line("a", a_second_after(1) + 5), line("b"), line("c", 2**62)])
    result = await logs(agent, "--timestamps")
    assert result.out == "2026-03-01T12:00:01.005Z a\n- b\n- c\n"


SHOP = [line("hello", source="web"), line("ready", source="database"), line("bye", source="web")]


@pytest.mark.asyncio
async def test_services_have_a_column() -> None:
    """Lines of a Compose application begin with the service; the column grows and never shrinks."""
    result = await logs(FakeAgent(list(SHOP)))
    assert result.out == "web | hello\ndatabase | ready\nweb      | bye\n"


@pytest.mark.asyncio
async def test_services_have_colours_on_a_terminal() -> None:
    """Each service keeps its colour, another one than the next has."""
    result = await logs(FakeAgent(list(SHOP)), terminal=True)
    assert result.out.splitlines() == [
        "\x1b[36mweb |\x1b[0m hello",
        "\x1b[33mdatabase |\x1b[0m ready",
        "\x1b[36mweb      |\x1b[0m bye",
    ]


@pytest.mark.asyncio
async def test_one_service() -> None:
    """--source leaves the others out."""
    result = await logs(FakeAgent(list(SHOP)), "--source", "database")
    assert result.out == "database | ready\n"


@pytest.mark.asyncio
async def test_lines_for_programs() -> None:
    """-o json: a document per line on standard output, whichever stream it was, with the node."""
    agent = FakeAgent([line("\x1b[1mx", 5, "stderr", "web")])
    result = await logs(agent, "-o", "json")
    assert json.loads(result.out) == {
        "atMs": "5", "nodeId": "n1", "source": "web", "stream": "stderr", "text": "\x1b[1mx",
    }  # fmt: skip
    assert result.err == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext", "plain\ttext"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b[38;5;9mred", "\x1b[38;5;9mred\x1b[0m"),
        ("\x1b[2Jgone", "�[2Jgone"),
        ("\x1b]0;title\x07", "�]0;title�"),
        ("\x1b[6n\x9b", "�[6n�"),
        ("10%\r20%\r", "10%�20%"),
    ],
)
def test_escape_sequences_are_made_harmless(text: str, shown: str) -> None:
    """On a terminal colours pass and are ended; whatever else would steer it is replaced."""
    assert harmless(text, coloured=True) == shown


@pytest.mark.asyncio
async def test_no_colours_where_none_are_wanted() -> None:
    """NO_COLOR takes the workload's own colours too; a pipe gets every byte."""
    agent = FakeAgent([line("\x1b[31mred\x1b[2J")])
    async with serving(agent) as endpoint, served(with_web(endpoint)) as address:
        environ = {"PERSYS_SERVER": address}
        plain = await call("logs", "web", environ={**environ, "NO_COLOR": "1"}, terminal=True)
        piped = await call("logs", "web", environ=environ)
    assert (plain.out, piped.out) == ("red�[2J\n", "\x1b[31mred\x1b[2J\n")


@pytest.mark.parametrize(
    ("code", "text", "part"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "", "does not know this call: it is of an older release"),
        (grpc.StatusCode.NOT_FOUND, "no web", "does not have this workload: no web"),
        (grpc.StatusCode.FAILED_PRECONDITION, "VMs have no logs", "cannot do this: VMs have no l"),
        (grpc.StatusCode.PERMISSION_DENIED, "operators", "does not allow this: operators"),
        (grpc.StatusCode.INVALID_ARGUMENT, "id", "takes the request for a wrong one: id"),
        (grpc.StatusCode.INTERNAL, "boom", "failed: INTERNAL: boom"),
    ],
)
@pytest.mark.asyncio
async def test_an_agent_says_no(code: grpc.StatusCode, text: str, part: str) -> None:
    """Each refusal of an agent names the node and says what it means; the code is 1."""
    result = await logs(FakeAgent(refusal=Refusal(code, text)))
    assert result.code == ExitCode.FAILED
    assert f"the agent of node n1 {part}" in result.err
    followed = await logs(FakeAgent(refusal=Refusal(code, text)), "--follow")
    assert (followed.code, followed.err) == (ExitCode.FAILED, result.err)


@pytest.mark.asyncio
async def test_a_workload_on_no_node() -> None:
    """Why it is nowhere is told with its status; nobody else is asked."""
    fake = with_web("")
    fake.workloads["web"] = pb.WorkloadView(
        workload_id="web", status="Pending", reason=pb.ReasonDetail(message="0/3 nodes fit")
    )
    result = await ask(fake, "logs", "web")
    assert result.code == ExitCode.FAILED
    assert result.err == "error: workload web is on no node: Pending (0/3 nodes fit)\n"
    assert len(fake.asked) == 1


@pytest.mark.asyncio
async def test_a_node_without_an_address() -> None:
    """A node that told no endpoint, or is not known any more, is named."""
    fake = with_web("")
    silent = await ask(fake, "logs", "web")
    fake.nodes.clear()
    unknown = await ask(fake, "logs", "web")
    unheard = await ask(fake, "logs", "nobody")
    assert "is on node n1, whose agent told the scheduler no address" in silent.err
    assert "is on node n1, which the scheduler does not know any more" in unknown.err
    assert "workload 'nobody' not found" in unheard.err
    assert {silent.code, unknown.code, unheard.code} == {ExitCode.FAILED}


@pytest.mark.asyncio
async def test_an_agent_out_of_reach() -> None:
    """Node and endpoint are named with how it was tried, and what is known of a node that is not
    ready; it is an error of the connection."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{unused.getsockname()[1]}"
        fake = with_web(endpoint)
        ready = await ask(fake, "logs", "web")
        fake.nodes["n1"].status, fake.nodes["n1"].status_reason = "NotReady", "no heartbeat"
        result = await ask(fake, "logs", "web")
    assert "The scheduler has the node as" not in ready.err
    assert "The scheduler has the node as NotReady (no heartbeat)." in result.err
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert f"agent of node n1 cannot be reached from here at {endpoint} (in plain" in result.err
    assert "--agent-server-name" in result.err


@pytest.mark.asyncio
async def test_an_agent_that_never_answers() -> None:
    """Where an agent takes a call in and says nothing, --timeout ends it with 2."""
    silent = await logs(FakeAgent(is_silent=True), "--timeout", "100ms")
    assert (silent.code, "gave no answer in 0.1 s" in silent.err) == (ExitCode.NOT_YET, True)


@pytest.mark.asyncio
async def test_a_connection_that_never_stands() -> None:
    """Where nobody takes a connection in, --timeout ends it with 3."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        endpoint = f"127.0.0.1:{deaf.getsockname()[1]}"
        result = await ask(with_web(endpoint), "logs", "web", "--timeout", "100ms")
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert f"at {endpoint} (in plain text): no answer in 0.1 s" in result.err


@pytest.mark.asyncio
async def test_agents_get_the_certificates_of_the_scheduler(tmp_path: Path) -> None:
    """Mutual TLS with the same files; the name that is checked is the host's, or the one given."""
    authority = trustme.CA()
    ours = authority.issue_cert("persysctl")
    files = {"ca": authority.cert_pem, "cert": ours.cert_chain_pems[0], "key": ours.private_key_pem}
    for name, blob in files.items():
        blob.write_to_path(str(tmp_path / name))
    pair = authority.issue_cert("node-one")
    credentials = grpc.ssl_server_credentials(
        [(pair.private_key_pem.bytes(), pair.cert_chain_pems[0].bytes())],
        authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    agent = FakeAgent([line("hello")])
    async with serving(agent, credentials) as endpoint:
        fake = with_web(endpoint)
        async with served(fake, credentials) as address:
            argv = ["logs", "web", "--server", address, "--server-name", "node-one"]
            argv += [word for name in files for word in (_flag(name), str(tmp_path / name))]
            other = await call(*argv)
            named = await call(*argv, "--agent-server-name", "node-one")
            by_variable = await call(*argv, environ={"PERSYS_AGENT_SERVER_NAME": "node-one"})
    assert other.code == ExitCode.USAGE_OR_CONNECTION
    assert "(with TLS)" in other.err
    assert (named.code, named.out) == (by_variable.code, by_variable.out) == (0, "hello\n")


def _flag(name: str) -> str:
    return f"--{name}-file"
