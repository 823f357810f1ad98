"""Volumes, fences and given up data at the command line: what is sent, shown and refused."""

from __future__ import annotations

import json
import re

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from tests.unit.ctl.harness import FakeScheduler, ask, at, call
from tests.unit.ctl.test_commands import workload

pytestmark = pytest.mark.slow

HELD = "held by workload web on n1 since 2026-03-01T12:00:00+00:00, not fenced"
DATA = pb.VolumeView(
    disk=pb.DiskView(
        id="nfs:data",
        name="data",
        driver="nfs",
        size_gb=10,
        access_mode="ReadWriteOnce",
        retain_policy="Retain",
        phase="Attached",
        workload_refs=["web", "db"],
        attached_nodes=["n2"],
        created_at=at(-60),
    ),
    attachments=[
        pb.VolumeAttachmentView(workload_id="old", node_id="n1", phase="Detaching"),
        pb.VolumeAttachmentView(workload_id="web", node_id="n2", phase="Attached"),
    ],
    held_reason=HELD,
)
BROKEN = pb.VolumeView(
    disk=pb.DiskView(id="nfs:old", phase="Error", last_error="no such export"),
    attachments=[pb.VolumeAttachmentView(last_error="no such export", phase="Error")],
)


def holding(*volumes: pb.VolumeView, status: str = "NotReady") -> FakeScheduler:
    """One node, and these volumes."""
    node = pb.NodeView(node_id="n1", status=status)
    return FakeScheduler(nodes={"n1": node}, volumes=list(volumes))


@pytest.mark.asyncio
async def test_volumes_are_listed() -> None:
    """One line each: who uses it, where, everyone who has yet to let go included, and why it
    cannot move; an error stands beside that, once. Filters are passed on."""
    fake = holding(DATA, BROKEN)
    argv = ("volume", "list", "--node", "n1", "--workload", "web", "--phase", "attached")
    result = await ask(fake, *argv)
    assert fake.asked == [pb.ListVolumesRequest(node_id="n1", workload_id="web", phase="attached")]
    assert (result.code, result.out) == (
        ExitCode.DONE,
        "ID        SIZE   MODE           PHASE     USED BY       NODES   HELD\n"
        f"nfs:data  10 GB  ReadWriteOnce  Attached  db, old, web  n1, n2  {HELD}\n"
        "nfs:old   -      -              Error     -             -       error: no such export\n",
    )


@pytest.mark.asyncio
async def test_a_wide_list_shows_more() -> None:
    """Driver, policy and age stand before the reason."""
    result = await ask(holding(DATA), "volume", "list", "-o", "wide")
    header, line = result.out.splitlines()
    assert header.split()[-4:] == ["DRIVER", "POLICY", "CREATED", "HELD"]
    assert "nfs     Retain  1m" in line


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.asyncio
async def test_programs_get_everything(form: str) -> None:
    """The list has the wire's own names, and how fresh it is."""
    result = await ask(holding(DATA), "volume", "list", "-o", form)
    assert '"storeRevision": "7"' in result.out or "storeRevision: '7'" in result.out
    for part in ("heldReason", "Detaching", "retainPolicy", "items"):
        assert part in result.out


@pytest.mark.asyncio
async def test_no_volume_is_said() -> None:
    """An empty list is a sentence for people."""
    assert (await ask(holding(), "volume", "list")).out == "no volumes\n"


@pytest.mark.asyncio
async def test_an_old_list_is_warned_of() -> None:
    """A scheduler without its store cannot vouch for who holds what."""
    fake = holding(DATA)
    fake.stale = True
    assert "may be out of date" in (await ask(fake, "volume", "list")).err


@pytest.mark.asyncio
async def test_release() -> None:
    """Refused in the scheduler's words while it is used; force and reason are passed on."""
    fake = holding(DATA)
    result = await ask(fake, "volume", "release", "nfs:data")
    assert (result.code, result.out, result.err) == (
        ExitCode.FAILED, "", "error: it is in use\n",
    )  # fmt: skip
    argv = ("volume", "release", "nfs:data", "--force", "--reason", "n1 is off")
    result = await ask(fake, *argv)
    request = pb.ReleaseVolumeRequest(volume_id="nfs:data", reason="n1 is off", force=True)
    assert fake.asked[-1] == request
    assert (result.code, result.out) == (ExitCode.DONE, "nfs:data: given up\n")
    shown = json.loads((await ask(fake, *argv, "-o", "json")).out)
    assert (shown["accepted"], shown["volume"]["disk"]["id"]) == (True, "nfs:data")


@pytest.mark.asyncio
async def test_an_unknown_volume() -> None:
    """What is not there ends in 1 with the scheduler's words."""
    result = await ask(holding(), "volume", "release", "nfs:x")
    assert (result.code, result.err) == (ExitCode.FAILED, "error: volume 'nfs:x' not found\n")


@pytest.mark.parametrize("reason", [(), ("--reason", " ")])
@pytest.mark.asyncio
async def test_force_has_a_reason(reason: tuple[str, ...]) -> None:
    """Nothing is sent before somebody says why nothing writes any more."""
    fake = holding(DATA)
    result = await ask(fake, "volume", "release", "nfs:data", "--force", *reason)
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert "--force needs --reason" in result.err
    assert fake.asked == []


@pytest.mark.asyncio
async def test_fence() -> None:
    """The reason is passed on; the scheduler says what may move."""
    fake = holding()
    result = await ask(fake, "node", "fence", "n1", "--reason", "powered off")
    assert fake.asked == [pb.FenceNodeRequest(node_id="n1", reason="powered off")]
    assert (result.code, result.out) == (ExitCode.DONE, "n1: fenced\n")


@pytest.mark.asyncio
async def test_a_node_that_beats_is_not_fenced() -> None:
    """A refusal is an error in the scheduler's words."""
    result = await ask(holding(status="Ready"), "node", "fence", "n1", "--reason", "off")
    assert (result.code, result.err) == (ExitCode.FAILED, "error: refused: it still beats\n")


@pytest.mark.parametrize("reason", [(), ("--reason", "")])
@pytest.mark.asyncio
async def test_a_fence_has_a_reason(reason: tuple[str, ...]) -> None:
    """Nothing is sent without one."""
    fake = holding()
    result = await ask(fake, "node", "fence", "n1", *reason)
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert "--reason" in result.err
    assert fake.asked == []


@pytest.mark.asyncio
async def test_a_fence_is_seen() -> None:
    """Among the remarks of lists, with the operator's words, and in full in a description."""
    fake = holding()
    node = fake.nodes["n1"]
    node.MergeFrom(
        pb.NodeView(
            fenced=True, fence_reason="powered off", fenced_at=at(-60), status_reason="no heartbeat"
        )
    )
    assert "fenced (powered off), no heartbeat\n" in (await ask(fake, "nodes")).out
    node.draining = True
    assert "draining, fenced (powered off)\n" in (await ask(fake, "nodes")).out
    described = (await ask(fake, "describe", "node", "n1")).out
    assert re.search(r"Fenced +2026-03-01T11:59:00Z \(1m ago\)\n", described)


@pytest.mark.asyncio
async def test_what_a_node_uses_is_seen() -> None:
    """A description says what the node measured of itself, and how long ago."""
    fake = holding()
    usage = pb.NodeUsage(cpu_used_millicores=1500, memory_used_mb=512, disk_used_gb=7)
    fake.nodes["n1"].MergeFrom(pb.NodeView(usage=usage, usage_reported_at=at(-5)))
    described = (await ask(fake, "describe", "node", "n1")).out
    assert "cpu 1.5 cores, memory 512 MB, disk 7 GB (5s ago)" in described


@pytest.mark.parametrize("verb", ["describe", "status"])
@pytest.mark.asyncio
async def test_what_a_silent_node_does_by_itself_is_seen(verb: str) -> None:
    """An operator who waits for a volume sees whether the node's agent promised to let go of it."""
    fake = holding()
    argv = ("describe", "node", "n1") if verb == "describe" else ("node", "status", "n1")
    assert "When silent" not in (await ask(fake, *argv)).out
    fake.nodes["n1"].stop_after_seconds = 90
    out = " ".join((await ask(fake, *argv)).out.split())
    assert "When silent its agent stops exclusive work 1m30s after its lease ended" in out
    value = json.loads((await ask(fake, *argv, "-o", "json")).out)
    assert value["stopAfterSeconds"] == "90"


@pytest.mark.asyncio
async def test_local_data_is_given_up() -> None:
    """The flag is passed on, and what is lost is said; a refusal is an error that says why."""
    fake = FakeScheduler(
        workloads={"db": workload("db")},
        retry_answers={
            "db": pb.RetryWorkloadResponse(accepted=True, message="its data on n1 is given up"),
            "web": pb.RetryWorkloadResponse(message='node "n1" is in service'),
        },
    )
    lost = await ask(fake, "retry", "workload", "db", "--discard-local")
    assert fake.asked == [pb.RetryWorkloadRequest(workload_id="db", discard_local=True)]
    assert (lost.code, lost.out) == (
        ExitCode.DONE, "db is tried again; its data on n1 is given up\n",
    )  # fmt: skip
    refused = await ask(fake, "retry", "workload", "web", "--discard-local")
    assert (refused.code, refused.out) == (ExitCode.FAILED, "")
    assert refused.err == 'error: node "n1" is in service\n'


@pytest.mark.asyncio
async def test_a_description_has_the_volumes() -> None:
    """With their phases, and whatever else the list shows; nothing where there are none."""
    fake = holding(DATA)
    fake.workloads["web"] = workload("web")
    result = await ask(fake, "describe", "workload", "web")
    assert pb.ListVolumesRequest(workload_id="web") in fake.asked
    assert "\nVolumes\nID " in result.out
    assert "Attached" in result.out
    shown = json.loads((await ask(fake, "describe", "workload", "web", "-o", "json")).out)
    assert shown["volumes"][0]["disk"]["phase"] == "Attached"
    fake.volumes.clear()
    assert "Volumes" not in (await ask(fake, "describe", "workload", "web")).out


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (("volume", "release"), ("cannot write any more", "two writers destroy a volume")),
        (("node", "fence"), ("two writers destroy a volume", "heard again")),
        (("retry",), ("neither moved nor copied", "lost for good")),
    ],
)
@pytest.mark.asyncio
async def test_help_says_what_one_answers_for(
    verb: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is ordered that cannot be taken back."""
    with pytest.raises(SystemExit):
        await call(*verb, "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert [word for word in words if word not in shown] == []
