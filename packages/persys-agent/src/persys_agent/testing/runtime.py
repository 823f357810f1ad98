"""Contract of the Runtime port: what every technology keeps, whatever it runs.

Subclass ``RuntimeSuite`` and give it a ``bench`` fixture that returns a ``RuntimeBench``. Every
rule uses ids of its own and removes what it made; the bench itself is closed by each rule.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from persys_agent.runtimes.port import (
    Creation,
    FailureCode,
    Instance,
    Runtime,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.testing.runtime_bench import (
    GRACE,
    RuntimeBench,
    closing,
    order_of,
    removing,
    until,
    until_state,
)
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.spec import WorkloadSpec

__all__ = ["RuntimeBench", "RuntimeSuite"]

_MISSING_SECONDS = 15.0
_LONGEST_PAUSE_SECONDS = 1.0
_MISSING_CODES = {
    FailureCode.IMAGE_NOT_FOUND,
    FailureCode.IMAGE_PULL_FAILED,
    FailureCode.IMAGE_PULL_TIMEOUT,
    FailureCode.IMAGE_PULL_AUTH_FAILED,
}


async def _run(runtime: Runtime, workload_id: WorkloadId, spec: WorkloadSpec) -> Instance:
    """Create and start it, and wait until it runs."""
    await runtime.create(order_of(workload_id, spec))
    await runtime.start(workload_id)
    return await until_state(runtime, workload_id, AgentState.RUNNING)


async def _inspected(runtime: Runtime, workload_id: WorkloadId) -> Instance:
    instance = await runtime.inspect(workload_id)
    assert instance is not None
    return instance


async def _longest_pause(stop: asyncio.Event) -> float:
    """The longest time in seconds that the event loop did not come back, until ``stop``."""
    longest, last = 0.0, time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(0.01)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest


@pytest.mark.slow
@pytest.mark.asyncio
class RuntimeSuite:
    """Give it a ``bench`` fixture."""

    async def test_the_technology_is_there(self, bench: RuntimeBench) -> None:
        """A probe of what works says so, and with which version."""
        async with closing(bench):
            capability = await bench.runtime.probe()
            assert capability.is_available, capability.detail
            assert capability.detail

    async def test_the_absent_stays_absent(self, bench: RuntimeBench) -> None:
        """What is not there is ``None``, can be stopped and removed, and cannot be started."""
        async with closing(bench):
            name = bench.new_id()
            assert await bench.runtime.inspect(name) is None
            await bench.runtime.stop(name, GRACE)
            await bench.runtime.remove(name)
            await bench.runtime.remove(name, with_data=True)
            with pytest.raises(RuntimeFailedError):
                await bench.runtime.start(name)

    async def test_created_is_not_running(self, bench: RuntimeBench) -> None:
        """``create`` makes what was ordered, under its revision and hash, and does not run it."""
        async with closing(bench):
            order = order_of(bench.new_id(), bench.lasting(), "rev-1")
            async with removing(bench.runtime, order.workload_id):
                assert await bench.runtime.create(order) is Creation.CREATED
                instance = await _inspected(bench.runtime, order.workload_id)
                assert instance.workload_id == order.workload_id
                assert (instance.revision_id, instance.spec_hash) == ("rev-1", order.spec_hash)
                assert instance.state is AgentState.STOPPED
                assert instance.exit_code is None

    async def test_it_runs_once_started(self, bench: RuntimeBench) -> None:
        """``start`` runs it, a second time changes nothing, and no end is told of."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                first = await _run(bench.runtime, name, bench.lasting())
                await bench.runtime.start(name)
                second = await _inspected(bench.runtime, name)
                assert second.state is AgentState.RUNNING
                assert second.started_at == first.started_at
                assert second.exit_code is None
                assert second.finished_at is None

    async def test_the_same_order_is_adopted(self, bench: RuntimeBench) -> None:
        """The same revision and hash again touches nothing of what runs."""
        async with closing(bench):
            order = order_of(bench.new_id(), bench.lasting())
            async with removing(bench.runtime, order.workload_id):
                first = await _run(bench.runtime, order.workload_id, bench.lasting())
                assert await bench.runtime.create(order) is Creation.ADOPTED
                second = await _inspected(bench.runtime, order.workload_id)
                assert second.state is AgentState.RUNNING
                assert second.started_at == first.started_at

    async def test_another_revision_replaces(self, bench: RuntimeBench) -> None:
        """Another revision takes the place of the old instance, and waits to be started."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await _run(bench.runtime, name, bench.lasting())
                order = order_of(name, bench.lasting(), "another")
                assert await bench.runtime.create(order) is Creation.REPLACED
                instance = await _inspected(bench.runtime, name)
                assert instance.revision_id == "another"
                assert instance.state is AgentState.STOPPED
                await bench.runtime.start(name)
                await until_state(bench.runtime, name, AgentState.RUNNING)

    async def test_another_spec_replaces(self, bench: RuntimeBench) -> None:
        """A changed spec under an unchanged revision is no adoption (defect 14)."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await bench.runtime.create(order_of(name, bench.lasting(), "rev-1"))
                changed = order_of(name, bench.ending(0), "rev-1")
                assert await bench.runtime.create(changed) is Creation.REPLACED
                instance = await _inspected(bench.runtime, name)
                assert instance.spec_hash == changed.spec_hash

    async def test_stopped_is_stopped(self, bench: RuntimeBench) -> None:
        """``stop`` ends it, a second time changes nothing, and it can run again."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await _run(bench.runtime, name, bench.lasting())
                await bench.runtime.stop(name, GRACE)
                stopped = await _inspected(bench.runtime, name)
                assert stopped.state in {AgentState.STOPPED, AgentState.FAILED}
                await bench.runtime.stop(name, GRACE)
                await bench.runtime.start(name)
                await until_state(bench.runtime, name, AgentState.RUNNING)

    async def test_a_good_end_is_told(self, bench: RuntimeBench) -> None:
        """What ended with 0 is stopped, with that code where there are codes."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await bench.runtime.create(order_of(name, bench.ending(0)))
                await bench.runtime.start(name)
                if bench.has_exit_codes:
                    ended = await until(bench.runtime, name, lambda it: it.exit_code is not None)
                    assert ended.exit_code == 0
                    assert ended.finished_at is not None
                await until_state(bench.runtime, name, AgentState.STOPPED)

    async def test_a_bad_end_is_told(self, bench: RuntimeBench) -> None:
        """What ended otherwise has failed, and the message says with which code."""
        if not bench.has_exit_codes:
            pytest.skip("this technology tells no exit codes")
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await bench.runtime.create(order_of(name, bench.ending(3)))
                await bench.runtime.start(name)
                ended = await until_state(bench.runtime, name, AgentState.FAILED)
                assert ended.exit_code == 3
                assert "exited with code 3" in ended.message

    async def test_a_missing_image_is_said_soon(self, bench: RuntimeBench) -> None:
        """What cannot be had fails within seconds, with its own code, and leaves nothing."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                with pytest.raises(RuntimeFailedError) as raised:
                    async with asyncio.timeout(_MISSING_SECONDS):
                        await bench.runtime.create(order_of(name, bench.missing()))
                assert raised.value.code in _MISSING_CODES
                assert await bench.runtime.inspect(name) is None
                assert list(await bench.leftovers(name)) == []

    async def test_a_failed_replacement_is_not_half_made(self, bench: RuntimeBench) -> None:
        """After a revision that cannot be had there is the old instance, or none."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await bench.runtime.create(order_of(name, bench.lasting(), "rev-1"))
                with pytest.raises(RuntimeFailedError):
                    await bench.runtime.create(order_of(name, bench.missing(), "rev-2"))
                left = await bench.runtime.inspect(name)
                assert left is None or left.revision_id == "rev-1"

    async def test_removed_leaves_nothing(self, bench: RuntimeBench) -> None:
        """Removal of what runs, with its data, leaves nothing on the host."""
        async with closing(bench):
            name = bench.new_id()
            await _run(bench.runtime, name, bench.lasting())
            assert list(await bench.leftovers(name)) != []
            await bench.runtime.remove(name, with_data=True)
            assert await bench.runtime.inspect(name) is None
            assert list(await bench.leftovers(name)) == []

    async def test_instances_are_ours_alone(self, bench: RuntimeBench) -> None:
        """The list has every instance of ours, in order, and none of another agent's."""
        async with closing(bench):
            ours, theirs = [bench.new_id("b"), bench.new_id("a")], bench.new_id("c")
            async with removing(bench.runtime, *ours), removing(bench.neighbour, theirs):
                for name in ours:
                    await bench.runtime.create(order_of(name, bench.lasting()))
                await bench.neighbour.create(order_of(theirs, bench.lasting()))
                listed = [each.workload_id for each in await bench.runtime.instances()]
                assert listed == sorted(ours)
                others = [each.workload_id for each in await bench.neighbour.instances()]
                assert others == [theirs]

    async def test_what_another_agent_has_is_left_alone(self, bench: RuntimeBench) -> None:
        """Of a workload id that another agent of the host holds, nothing is seen or touched, and
        where it is in the way it is refused (defect 3)."""
        async with closing(bench):
            name = bench.new_id()
            async with removing(bench.runtime, name):
                await _run(bench.runtime, name, bench.lasting())
                assert await bench.neighbour.inspect(name) is None
                with pytest.raises(RuntimeFailedError):
                    await bench.neighbour.start(name)
                order = order_of(name, bench.ending(0), "other")
                if bench.shares_names:
                    with pytest.raises(RuntimeFailedError) as raised:
                        await bench.neighbour.create(order)
                    assert raised.value.code is FailureCode.NAME_CONFLICT
                else:
                    assert await bench.neighbour.create(order) is Creation.CREATED
                await bench.neighbour.stop(name, GRACE)
                await bench.neighbour.remove(name, with_data=True)
                assert await bench.neighbour.inspect(name) is None
                instance = await _inspected(bench.runtime, name)
                assert instance.state is AgentState.RUNNING

    async def test_a_restarted_agent_finds_its_work(self, bench: RuntimeBench) -> None:
        """A new runtime of the same owner sees the instance as it is, and adopts it."""
        async with closing(bench):
            order = order_of(bench.new_id(), bench.lasting())
            async with removing(bench.runtime, order.workload_id):
                before = await _run(bench.runtime, order.workload_id, bench.lasting())
                again = await bench.again()
                found = await until_state(again, order.workload_id, AgentState.RUNNING)
                assert found.started_at == before.started_at
                assert found.revision_id == order.revision_id
                assert await again.create(order) is Creation.ADOPTED
                listed = [each.workload_id for each in await again.instances()]
                assert order.workload_id in listed

    async def test_silence_is_not_absence(self, bench: RuntimeBench) -> None:
        """A technology that does not answer raises; nobody may take it for *absent* (defect 2)."""
        async with closing(bench):
            silent, order = await bench.unreachable(), order_of("w", bench.lasting())
            capability = await silent.probe()
            assert not capability.is_available
            assert capability.detail
            calls: tuple[Callable[[], Awaitable[object]], ...] = (
                lambda: silent.inspect("w"),
                silent.instances,
                lambda: silent.create(order),
                lambda: silent.start("w"),
                lambda: silent.stop("w", GRACE),
                lambda: silent.remove("w"),
            )
            for call in calls:
                with pytest.raises(RuntimeUnavailableError):
                    await call()

    async def test_ids_are_checked(self, bench: RuntimeBench) -> None:
        """An id that could be a path is refused (defect 31)."""
        async with closing(bench):
            with pytest.raises(RuntimeFailedError) as raised:
                await bench.runtime.create(order_of("../evil", bench.lasting()))
            assert raised.value.code is FailureCode.INVALID_SPEC

    async def test_the_loop_goes_on(self, bench: RuntimeBench) -> None:
        """No call holds the event loop, not even the stop of what does not listen."""
        async with closing(bench):
            name, done = bench.new_id(), asyncio.Event()
            watch = asyncio.create_task(_longest_pause(done))
            await asyncio.sleep(0)  # it measures from here on
            try:
                async with removing(bench.runtime, name):
                    await _run(bench.runtime, name, bench.stubborn())
                    await bench.runtime.instances()
                    await bench.runtime.stop(name, GRACE)
            finally:
                done.set()
                longest = await watch
            assert longest < _LONGEST_PAUSE_SECONDS

    async def test_a_cancelled_call_breaks_nothing(self, bench: RuntimeBench) -> None:
        """A call that is cut off can be made again, and the runtime works on."""
        async with closing(bench):
            order = order_of(bench.new_id(), bench.lasting())
            async with removing(bench.runtime, order.workload_id):
                call = asyncio.create_task(bench.runtime.create(order))
                await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
                await bench.runtime.create(order)
                await bench.runtime.start(order.workload_id)
                await until_state(bench.runtime, order.workload_id, AgentState.RUNNING)
