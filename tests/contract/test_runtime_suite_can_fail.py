"""The contract of the Runtime port finds the faults that it is there for."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest
from attrs import define, evolve

from persys_agent.runtimes.port import (
    Capability,
    Creation,
    FailureCode,
    Instance,
    Order,
    Owner,
    Runtime,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import RuntimeBench
from persys_core.model.ids import is_valid_id
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import WorkloadType

Rule: TypeAlias = Callable[[RuntimeBench], Awaitable[None]]
RULES = RuntimeSuite()
OWNER, NEIGHBOUR = Owner("one"), Owner("two")


@define
class Thing:
    owner: Owner
    order: Order
    instance: Instance


Host: TypeAlias = dict[str, Thing]


class SoundRuntime:
    """A technology of one dictionary."""

    kind = WorkloadType.CONTAINER

    def __init__(self, host: Host | None, owner: Owner) -> None:
        self._silent_host, self.owner = host, owner

    @property
    def host(self) -> Host:
        if self._silent_host is None:
            raise RuntimeUnavailableError("nobody is there")
        return self._silent_host

    def mine(self, name: str) -> Thing | None:
        found = self.host.get(name)
        return found if found and found.owner == self.owner else None

    async def probe(self) -> Capability:
        return Capability(self._silent_host is not None, "a dictionary")

    async def create(self, order: Order) -> Creation:
        name, host = order.workload_id, self.host
        if not is_valid_id(name):
            raise RuntimeFailedError(FailureCode.INVALID_SPEC, "no id")
        if name in host and self.mine(name) is None:
            raise RuntimeFailedError(FailureCode.NAME_CONFLICT, "taken")
        before = host.get(name)
        if before is not None and self.is_same(before.order, order):
            return Creation.ADOPTED
        if image_of(order) == "missing":
            raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, "missing")
        state = Instance(name, order.revision_id, order.spec_hash, AgentState.STOPPED)
        host[name] = Thing(self.owner, order, state)
        return Creation.CREATED if before is None else Creation.REPLACED

    def is_same(self, old: Order, new: Order) -> bool:
        return (old.revision_id, old.spec_hash) == (new.revision_id, new.spec_hash)

    async def start(self, workload_id: str) -> None:
        found = self.mine(workload_id)
        if found is None:
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, "absent")
        if found.instance.state is AgentState.RUNNING:
            return
        now, image = datetime.now(UTC), image_of(found.order)
        found.instance = evolve(found.instance, state=AgentState.RUNNING, started_at=now)
        if image.isdigit():
            self.end(found, int(image))

    def end(self, found: Thing, code: int) -> None:
        found.instance = evolve(
            found.instance,
            state=AgentState.FAILED if code else AgentState.STOPPED,
            message=f"exited with code {code}" if code else "exited",
            exit_code=code,
            finished_at=datetime.now(UTC),
        )

    async def stop(self, workload_id: str, grace: timedelta) -> None:
        found = self.mine(workload_id)
        if found and found.instance.state is AgentState.RUNNING:
            self.end(found, 0)

    async def remove(self, workload_id: str, *, with_data: bool = False) -> None:
        if self.mine(workload_id):
            del self.host[workload_id]

    async def inspect(self, workload_id: str) -> Instance | None:
        found = self.mine(workload_id)
        return found.instance if found else None

    async def instances(self) -> Sequence[Instance]:
        mine = (self.mine(name) for name in sorted(self.host))
        return [each.instance for each in mine if each]

    async def aclose(self) -> None:
        pass


def image_of(order: Order) -> str:
    assert isinstance(order.spec.body, ContainerSpec)
    return order.spec.body.image


class SeesEverything(SoundRuntime):
    """What is on the host is taken for its own (defect 3)."""

    def mine(self, name: str) -> Thing | None:
        return self.host.get(name)


class SilenceIsAbsence(SoundRuntime):
    """A technology that is away has nothing (defect 2)."""

    async def inspect(self, workload_id: str) -> Instance | None:
        return None if self._silent_host is None else await super().inspect(workload_id)


class LooksAtRevisionsOnly(SoundRuntime):
    """A changed spec under its old revision is not noticed (defect 14)."""

    def is_same(self, old: Order, new: Order) -> bool:
        return old.revision_id == new.revision_id


class AlwaysAnew(SoundRuntime):
    """Nothing is adopted."""

    def is_same(self, old: Order, new: Order) -> bool:
        return False


class MissesTheAbsent(SoundRuntime):
    """The removal of what is gone is an error (defect 33)."""

    async def remove(self, workload_id: str, *, with_data: bool = False) -> None:
        if self.mine(workload_id) is None:
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, "no such thing")
        await super().remove(workload_id, with_data=with_data)


class ForgetsNothing(SoundRuntime):
    """Removal only stops."""

    async def remove(self, workload_id: str, *, with_data: bool = False) -> None:
        await self.stop(workload_id, timedelta(0))


class StartsAtOnce(SoundRuntime):
    """What is created runs."""

    async def create(self, order: Order) -> Creation:
        made = await super().create(order)
        await self.start(order.workload_id)
        return made


class TakesAnyName(SoundRuntime):
    """Ids are not looked at (defect 31)."""

    async def create(self, order: Order) -> Creation:
        plain = order.workload_id.strip("./")
        return await super().create(evolve(order, workload_id=plain))


class HoldsTheLoop(SoundRuntime):
    """A stop waits without letting others run."""

    async def stop(self, workload_id: str, grace: timedelta) -> None:
        time.sleep(1.2)  # noqa: ASYNC251
        await super().stop(workload_id, grace)


class HalfMade(SoundRuntime):
    """What cannot be had leaves something behind."""

    async def create(self, order: Order) -> Creation:
        if image_of(order) == "missing":
            state = Instance(order.workload_id, order.revision_id, "", AgentState.STOPPED)
            self.host[order.workload_id] = Thing(self.owner, order, state)
            raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, "missing")
        return await super().create(order)


class DictionaryBench(RuntimeBench):
    def __init__(self, kind: type[SoundRuntime] = SoundRuntime) -> None:
        self._host: Host = {}
        self._kind = kind
        self.runtime, self.neighbour = kind(self._host, OWNER), kind(self._host, NEIGHBOUR)

    def of(self, image: str) -> WorkloadSpec:
        return WorkloadSpec(WorkloadType.CONTAINER, Resources(), ContainerSpec(image))

    def lasting(self) -> WorkloadSpec:
        return self.of("lasting")

    def ending(self, code: int) -> WorkloadSpec:
        return self.of(str(code))

    def missing(self) -> WorkloadSpec:
        return self.of("missing")

    async def again(self) -> Runtime:
        return self._kind(self._host, OWNER)

    async def unreachable(self) -> Runtime:
        return self._kind(None, OWNER)

    async def leftovers(self, workload_id: str) -> Sequence[str]:
        return [name for name in self._host if name == workload_id]

    async def aclose(self) -> None:
        pass


class TestSoundRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self) -> RuntimeBench:
        return DictionaryBench()


CASES: list[tuple[type[SoundRuntime], Rule]] = [
    (SeesEverything, RULES.test_instances_are_ours_alone),
    (SeesEverything, RULES.test_what_another_agent_has_is_left_alone),
    (SilenceIsAbsence, RULES.test_silence_is_not_absence),
    (LooksAtRevisionsOnly, RULES.test_another_spec_replaces),
    (AlwaysAnew, RULES.test_the_same_order_is_adopted),
    (AlwaysAnew, RULES.test_a_restarted_agent_finds_its_work),
    (MissesTheAbsent, RULES.test_the_absent_stays_absent),
    (ForgetsNothing, RULES.test_removed_leaves_nothing),
    (StartsAtOnce, RULES.test_created_is_not_running),
    (TakesAnyName, RULES.test_ids_are_checked),
    (HoldsTheLoop, RULES.test_the_loop_goes_on),
    (HalfMade, RULES.test_a_missing_image_is_said_soon),
    (HalfMade, RULES.test_a_failed_replacement_is_not_half_made),
]


def case_name(value: object) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "rule"), CASES, ids=case_name)
async def test_a_broken_promise_is_found(kind: type[SoundRuntime], rule: Rule) -> None:
    """A runtime with this fault fails this rule, which a sound one passes."""
    await rule(DictionaryBench())
    with pytest.raises((AssertionError, RuntimeFailedError, pytest.fail.Exception)):
        await rule(DictionaryBench(kind))
