from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.engine.board import NothingKnownError
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_agent.storage.port import StorageFailedError
from persys_core.model.observation import AgentState
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, Node, apply_message, volume


async def told(node: Node, workload_id: str = "w1") -> object:
    return await node.assembly.works.board.report(workload_id)


@virtual_time()
async def test_a_delete_keeps_the_data_unless_told(clock: VirtualClock, tmp_path: Path) -> None:
    """The instance and its mounts go; a volume's data goes only when it is said."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(volume("data"),)))
        await node.delete()
        await node.settled()
        assert await told(node) is None
        assert bench.host.instance("w1") is None
        assert (bench.disks.attached, bench.disks.volumes) == (set(), {"data"})
        assert bench.host.faults.count("remove_with_data", "w1") == 0


@virtual_time()
async def test_a_delete_with_volumes_spares_what_is_to_be_retained(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """The retain policy of a volume wins over the wish to delete all."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        volumes = (volume("data"), volume("kept", retain="Retain"))
        await node.applied(apply_message(volumes=volumes))
        await node.delete(volumes=True)
        await node.settled()
        assert (bench.disks.attached, bench.disks.volumes) == (set(), {"kept"})
        assert bench.host.faults.count("remove_with_data", "w1") == 1


@virtual_time()
async def test_deleting_what_is_not_there_succeeds(clock: VirtualClock, tmp_path: Path) -> None:
    """Nothing is failed afterwards: the workload is simply not there (A10)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.delete("ghost")
        await node.settled()
        assert node.errors() == []
        assert await told(node, "ghost") is None


@virtual_time()
async def test_a_silent_runtime_lets_nothing_be_forgotten(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A delete that could not be carried out is failed, told, and tried again (A2)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(volume("data"),)))
        bench.host.is_up = False
        await node.delete()
        await node.settled()
        assert "runtime not available" in node.errors()[0]
        report = await node.report()
        assert report.state is AgentState.UNKNOWN
        assert "last_delete_error" in report.metadata
        assert bench.disks.attached == {("data", "w1")}
        bench.host.is_up = True
        await clock.sleep(timedelta(minutes=1))
        await node.look()
        assert await told(node) is None
        assert bench.host.instance("w1") is None
        assert bench.disks.attached == set()


@virtual_time()
async def test_a_volume_in_use_holds_a_delete_up(clock: VirtualClock, tmp_path: Path) -> None:
    """The record stays until the volume is detached; it is not started again meanwhile."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(volume("data"),)))
        bench.disks.faults.fail("detach", StorageFailedError("target is busy"), times=2)
        await node.delete()
        await node.settled()
        assert "target is busy" in (await node.report()).metadata["last_delete_error"]
        for _ in range(4):
            await clock.sleep(timedelta(minutes=2))
            await node.look()
        assert await told(node) is None
        assert bench.host.started["w1"] == 1


@virtual_time()
async def test_a_stop_that_fails_does_not_hold_a_delete_up(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Removing ends it by force."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.faults.fail("stop", RuntimeFailedError(FailureCode.RUNTIME_ERROR, "hangs"))
        await node.delete()
        await node.settled()
        assert await told(node) is None


@virtual_time()
async def test_nobody_is_denied_while_its_runtime_is_silent(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Without a record, a runtime that may have it decides; its silence is no answer (A2)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        await node.assembly.works.state.drop("w1")
        bench.host.is_up = False
        with pytest.raises(NothingKnownError, match="container"):
            await told(node)


@virtual_time()
async def test_an_orphan_is_told_and_goes_only_by_a_delete(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """An instance of ours without a record is left running until the scheduler says so."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
    (tmp_path / "state.db").unlink()
    async with bench.node() as node:
        for _ in range(3):
            await clock.sleep(timedelta(minutes=10))
            await node.look()
        (listed,) = await node.assembly.works.board.reports()
        assert listed == await told(node)
        assert (listed.workload_id, listed.revision_id) == ("w1", "r1")
        assert (listed.state, listed.metadata["orphan"]) == (AgentState.RUNNING, "true")
        bench.host.is_up = False
        await node.delete()
        assert len(await node.assembly.works.board.reports()) == 1
        await node.settled()
        assert "runtime not available" in node.errors()[0]
        assert len(await node.assembly.works.board.reports()) == 1
        bench.host.is_up = True
        await node.delete()
        await node.settled()
        assert bench.host.instance("w1") is None
        assert await node.assembly.works.board.reports() == []


@virtual_time()
async def test_an_orphan_is_adopted_by_an_apply(clock: VirtualClock, tmp_path: Path) -> None:
    """The same revision and spec again takes it over as it runs."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
    (tmp_path / "state.db").unlink()
    async with bench.node() as node:
        report = await node.applied(apply_message())
        assert report.state is AgentState.RUNNING
        assert "orphan" not in report.metadata
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 1)


@virtual_time()
async def test_an_orphan_keeps_its_volumes_when_it_cannot_be_adopted(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Its instance has them, although no record says so: a failure takes none of them away."""
    bench = Bench(clock, tmp_path)
    message = apply_message(volumes=(volume("data"),))
    async with bench.node() as node:
        await node.applied(message)
    (tmp_path / "state.db").unlink()
    async with bench.node() as node:
        refused = RuntimeFailedError(FailureCode.INVALID_SPEC, "not on this node any more")
        bench.host.faults.fail("create", refused)
        report = await node.applied(message)
        assert (report.state, report.failure_code) == (AgentState.RUNNING, "INVALID_SPECIFICATION")
        assert bench.disks.attached == {("data", "w1")}
        await node.delete()
        await node.settled()
        assert bench.disks.attached == set()
