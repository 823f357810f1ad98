"""`persysctl import` and `acknowledge-empty`: shown first, asked for, and never done by the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from persys_core.recovery.plan import JUDGEMENTS
from persys_proto.control.v1 import control_pb2 as pb
from persysctl.commands.import_ import _RECORDED
from tests.unit.ctl.harness import FakeScheduler, ask


def answer(mode: str = "normal") -> pb.ImportFromAgentsResponse:
    """One workload to import and one in conflict."""
    return pb.ImportFromAgentsResponse(
        accepted=True,
        message="1 workload of 1 node",
        mode=mode,
        nodes_listed=1,
        workloads=[
            pb.ImportedWorkload(
                workload_id="web",
                node_id="n1",
                type="container",
                revision_id="a" * 24,
                decision="import",
                detail="apply it",
            ),
            pb.ImportedWorkload(workload_id="db", node_id="n1", decision="conflict"),
        ],
    )


DRY = pb.ImportFromAgentsRequest(dry_run=True)
REAL = pb.ImportFromAgentsRequest()


@pytest.mark.asyncio
async def test_a_dry_run_shows_and_changes_nothing() -> None:
    """One line per workload with its decision and why; only the dry run is asked for."""
    fake = FakeScheduler(imported=answer("recovery"))
    result = await ask(fake, "import", "--dry-run")
    header, web, db = result.out.splitlines()
    assert header.split() == ["WORKLOAD", "NODE", "TYPE", "REVISION", "DECISION", "NOTE"]
    assert web.split()[0] == "web"
    assert web.endswith("apply it")
    assert "a" * 24 not in web
    assert db.split() == ["db", "n1", "-", "-", "conflict"]
    assert "1 workload of 1 node" in result.err
    assert (result.code, fake.asked) == (0, [DRY])


def full_of(recorded: int, *more: pb.ImportedWorkload) -> pb.ImportFromAgentsResponse:
    """So many workloads that are as recorded, between others."""
    same = [
        pb.ImportedWorkload(
            workload_id=f"w{number}", node_id="n1", decision="skip", detail="recorded already"
        )
        for number in range(recorded)
    ]
    return pb.ImportFromAgentsResponse(accepted=True, workloads=[*same, *more])


@pytest.mark.asyncio
async def test_what_is_recorded_already_is_a_number() -> None:
    """One line for all of it, so that the rest is seen; wide and programs get every row."""
    odd = pb.ImportedWorkload(workload_id="odd", decision="skip", detail="its delete is owed there")
    fake = FakeScheduler(imported=full_of(3, odd))
    lines = (await ask(fake, "import", "--dry-run")).out.splitlines()
    assert [line.split()[0] for line in lines] == ["WORKLOAD", "odd", "3"]
    assert lines[-1] == "3 workloads skipped: recorded already (-o wide lists them)"
    wide = await ask(fake, "import", "--dry-run", "-o", "wide")
    assert [line.split()[0] for line in wide.out.splitlines()] == [
        "WORKLOAD",
        "w0",
        "w1",
        "w2",
        "odd",
    ]
    told = await ask(fake, "import", "--dry-run", "-o", "json")
    assert len(json.loads(told.out)["workloads"]) == 4
    fake = FakeScheduler(imported=full_of(1))
    lines = (await ask(fake, "import", "--dry-run")).out.splitlines()
    assert lines == ["1 workload skipped: recorded already (-o wide lists them)"]


def test_the_words_are_those_of_the_scheduler() -> None:
    """What persysctl counts is what the scheduler calls so."""
    [kept] = [each for each in JUDGEMENTS if each.name == "kept"]
    case: Any = None  # these words are the same for every case
    assert (str(kept.decision), kept.detail(case)) == _RECORDED


@pytest.mark.asyncio
async def test_a_person_sees_it_and_is_asked() -> None:
    """Yes does it, anything else does not; what is asked stands beside the answer."""
    fake = FakeScheduler(imported=answer())
    result = await ask(fake, "import", stdin="y\n", terminal=True)
    assert "import 1 workload, which changes nothing on the nodes? [y/N]" in result.err
    assert "web" in result.err
    assert (result.code, fake.asked) == (0, [DRY, REAL])
    for reply in ("\n", "n\n", ""):
        fake = FakeScheduler(imported=answer())
        result = await ask(fake, "import", stdin=reply, terminal=True)
        assert "nothing was done" in result.err
        assert (result.code, fake.asked) == (1, [DRY])


@pytest.mark.asyncio
async def test_a_script_has_to_say_yes() -> None:
    """Without a terminal nobody is asked, and nothing is done without --yes."""
    fake = FakeScheduler(imported=answer())
    result = await ask(fake, "import", stdin="y\n")
    assert "--yes" in result.err
    assert (result.code, fake.asked) == (3, [DRY])
    fake = FakeScheduler(imported=answer())
    result = await ask(
        fake, "import", "--node", "n1", "--node", "n2", "--reason", "disk", "--yes", "-o", "json"
    )
    assert json.loads(result.out)["mode"] == "normal"
    wanted = pb.ImportFromAgentsRequest(node_ids=["n1", "n2"], reason="disk")
    assert (result.code, fake.asked) == (0, [wanted])


@pytest.mark.asyncio
async def test_recovery_that_goes_on_has_an_exit_code() -> None:
    """A script sees that the cluster does not work yet."""
    result = await ask(FakeScheduler(imported=answer("recovery")), "import", "--yes")
    assert result.code == 2


@pytest.mark.asyncio
async def test_dry_run_and_yes_exclude_one_another() -> None:
    """Nothing is guessed."""
    fake = FakeScheduler()
    result = await ask(fake, "import", "--yes", "--dry-run")
    assert (result.code, fake.asked) == (3, [])


@pytest.mark.asyncio
async def test_nothing_reported_is_said() -> None:
    """An empty table is a sentence."""
    result = await ask(FakeScheduler(), "import", "--dry-run")
    assert "no workload is reported" in result.out


@pytest.mark.asyncio
async def test_an_acknowledgement_warns_and_asks() -> None:
    """A reason is needed, the warning always stands there, and a script says --yes."""
    fake = FakeScheduler()
    assert (await ask(fake, "acknowledge-empty", "--yes")).code == 3
    assert (await ask(fake, "acknowledge-empty", "--reason", " ", "--yes")).code == 3
    assert (await ask(fake, "acknowledge-empty", "--reason", "r")).code == 3
    assert fake.asked == []
    for extra, stdin in ((["--yes"], ""), ([], "yes\n")):
        fake = FakeScheduler()
        result = await ask(
            fake, "acknowledge-empty", "--reason", "anew", *extra, stdin=stdin, terminal=True
        )
        assert "warning" in result.err
        assert "the mode is normal" in result.out
        assert (result.code, fake.asked) == (0, [pb.AcknowledgeEmptyRequest(reason="anew")])
