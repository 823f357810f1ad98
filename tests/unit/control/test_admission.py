"""What an apply stores, what it leaves alone, and what it never shows."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve, fields

from persys_core.model.errors import InvalidInputError, NotFoundError
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    DiskSpec,
    ManagedVolume,
    NetworkSpec,
    PortMapping,
    VmSpec,
    VolumeMount,
    WorkloadSpec,
    secret_values,
    spec_revision,
)
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import container, machine, running_cluster, wish

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-XYZ"


@virtual_time()
async def test_same_spec_three_times_is_one_revision(clock: VirtualClock) -> None:
    """A02: equal specs, whatever the order of their keys, make one revision, one agent apply and
    no write."""
    async with running_cluster(clock, machine("n1")) as driver:
        first = container(env={"A": "1", "B": "2"}, metadata={"x": "1", "y": "2"})
        shuffled = container(env={"B": "2", "A": "1"}, metadata={"y": "2", "x": "1"})
        created = await driver.apply("w", first)
        await driver.wait(seconds=20)
        revision = driver.cluster.backend.revision
        for spec in (first, shuffled):
            answer = await driver.apply("w", spec)
            assert (answer.outcome, answer.revision_id) == ("Unchanged", created.revision_id)
        await driver.wait(minutes=1)
        assert driver.cluster.backend.revision == revision
        assert driver.calls("apply", "w") == 1


CONTAINER = WorkloadSpec(
    WorkloadType.CONTAINER,
    Resources.of(cpu_millicores=1, memory_mb=2, disk_gb=3),
    ContainerSpec(
        "a",
        ("b",),
        {"c": "d"},
        (VolumeMount("/e", "/f"),),
        (PortMapping(1, 2),),
        RestartPolicy.ALWAYS,
        False,
        (ManagedVolume("g", mount_path="/h"),),
    ),
    {"i": "j"},
)
COMPOSE = WorkloadSpec(
    WorkloadType.COMPOSE, Resources(), ComposeSpec("services: {}", "", "", {"a": "b"})
)
MACHINE = WorkloadSpec(
    WorkloadType.VM,
    Resources(),
    VmSpec(
        1,
        2,
        (DiskSpec(1),),
        (NetworkSpec("br0"),),
        CloudInit("u"),
        "t",
        "img",
        3,
        "r",
        "n",
        {"a": "b"},
        (ManagedVolume("v"),),
    ),
)


def _changed(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of field
    """Some other value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case RestartPolicy():
            return RestartPolicy.NO
        case WorkloadType():
            return WorkloadType.MICROVM
        case str():
            return value + "x"
        case dict():
            return {**value, "new": "1"}
        case tuple():
            return (*value, value[0]) if value else ("x",)
        case Resources():
            return value + Resources.of(cpu_millicores=1)
        case CloudInit():
            return evolve(value, meta_data="x")
        case _:
            return None


def _mutations() -> list[tuple[str, WorkloadSpec, WorkloadSpec]]:
    """Every field of every kind of spec, changed alone; nested parts too."""
    found = []
    for spec in (CONTAINER, COMPOSE, MACHINE):
        for each in fields(WorkloadSpec):
            if each.name != "body":
                changed = evolve(spec, **{each.name: _changed(getattr(spec, each.name))})
                found.append((f"{spec.type}.{each.name}", spec, changed))
        for name, body in _changed_parts(spec.body):
            found.append((f"{spec.type}.body.{name}", spec, evolve(spec, body=body)))
    return found


def _changed_parts(part: Any) -> list[tuple[str, Any]]:
    found = []
    for each in fields(type(part)):
        value = getattr(part, each.name)
        found.append((each.name, evolve(part, **{each.name: _changed(value)})))
        if isinstance(value, tuple) and value and hasattr(value[0], "__attrs_attrs__"):
            found.extend(
                (f"{each.name}[0].{name}", evolve(part, **{each.name: (nested,)}))
                for name, nested in _changed_parts(value[0])
            )
        if isinstance(value, CloudInit):
            found.extend(
                (f"{each.name}.{name}", evolve(part, **{each.name: nested}))
                for name, nested in _changed_parts(value)
            )
    return found


@pytest.mark.parametrize(
    ("spec", "changed"),
    [pytest.param(spec, changed, id=name) for name, spec, changed in _mutations()],
)
def test_every_field_makes_a_revision(spec: WorkloadSpec, changed: WorkloadSpec) -> None:
    """A02: a change of any single field of a spec is another revision."""
    assert spec_revision(spec) != spec_revision(changed)


def test_revision_is_pinned() -> None:
    """The canonical form may not drift: a stored revision must stay the revision of its spec."""
    assert spec_revision(COMPOSE) == spec_revision(evolve(COMPOSE))
    assert len(spec_revision(COMPOSE)) == 24


@virtual_time()
async def test_changed_field_is_one_new_revision_and_one_apply(clock: VirtualClock) -> None:
    """A02: an update is sent once; a client's own label is kept for display only."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container("nginx:1"))
        await driver.wait(seconds=20)
        request = evolve(wish("w", container("nginx:2")), client_revision_id="rev-1")
        answer = await driver.cluster.api().admission.apply_workload(request)
        assert answer.outcome == "Updated"
        await driver.wait(minutes=1)
        assert driver.calls("apply", "w") == 2
        view = await driver.view("w")
        assert view.workload.client_revision_id == "rev-1"
        assert view.workload.revision_id == answer.revision_id != "rev-1"


@pytest.mark.parametrize(
    ("request_of", "field"),
    [
        (lambda: wish("../etc/passwd", container()), "workload_id"),
        (lambda: wish("w" * 254, container()), "workload_id"),
        (lambda: evolve(wish("w"), spec=None, desired_state=None), "spec"),
        (lambda: wish("w", None, DesiredState.DELETED), "desired_state"),
        (
            lambda: wish("w", container(metadata={"persys.scheduling.strategy": "magic"})),
            "spec.metadata[persys.scheduling.strategy]",
        ),
        (
            lambda: wish("w", container(metadata={"persys.scheduling.node_system": "ture"})),
            "spec.metadata[persys.scheduling.node_system]",
        ),
        (
            lambda: wish("w", container(metadata={"persys.scheduling.tolerations": "a:Never"})),
            "spec.metadata[persys.scheduling.tolerations]",
        ),
        (
            lambda: wish("w", container(metadata={"persys.scheduling.node_selecter.a": "b"})),
            "spec.metadata[persys.scheduling.node_selecter.a]",
        ),
    ],
)
def test_bad_requests_are_refused_whole(request_of: Callable[[], Any], field: str) -> None:
    """Bad input names its field, and nothing is stored."""

    @virtual_time()
    async def scenario(clock: VirtualClock) -> None:
        async with running_cluster(clock, machine("n1")) as driver:
            revision = driver.cluster.backend.revision
            with pytest.raises(InvalidInputError) as caught:
                await driver.cluster.api().admission.apply_workload(request_of())
            assert field in [error.field for error in caught.value.errors]
            assert driver.cluster.backend.revision == revision

    scenario()


@virtual_time()
async def test_desired_state_of_an_unknown_workload(clock: VirtualClock) -> None:
    """Starting what does not exist is not found."""
    async with running_cluster(clock) as driver:
        with pytest.raises(NotFoundError):
            await driver.desire("w", DesiredState.RUNNING)


@virtual_time()
async def test_created_stopped_is_not_placed(clock: VirtualClock) -> None:
    """A workload that is wanted stopped from the beginning needs no node."""
    async with running_cluster(clock, machine("n1")) as driver:
        request = evolve(wish("w"), desired_state=DesiredState.STOPPED)
        answer = await driver.cluster.api().admission.apply_workload(request)
        await driver.wait(minutes=1)
        assert (answer.node_id, await driver.status("w")) == ("", "Stopped")
        assert driver.calls("apply") == 0


def test_secrets_are_not_in_representations() -> None:
    """A04: a repr of a spec, which is what ends up in logs and tracebacks, holds no secret."""
    spec = container(env={"DB_PASSWORD": SECRET, "URL": f"redis://u:{SECRET}@h/0"})
    git = WorkloadSpec(
        WorkloadType.COMPOSE, Resources(), ComposeSpec("", f"https://x:{SECRET}@git.example/r")
    )
    vm = WorkloadSpec(
        WorkloadType.VM,
        Resources(),
        VmSpec(1, 1, cloud_init=CloudInit(user_data=SECRET, password=SECRET)),
    )
    for each in (spec, git, vm):
        assert SECRET not in repr(each)
        assert SECRET in secret_values(each)


@virtual_time()
async def test_agent_that_echoes_a_secret(clock: VirtualClock) -> None:
    """A04: an agent's error text that holds a secret of the spec reaches records, events and
    explanations without it."""
    async with running_cluster(clock, machine("n1")) as driver:
        spec = container(f"missing-{SECRET}", env={"API_TOKEN": SECRET})
        await driver.apply("w", spec)
        await driver.wait(minutes=10)
        view = await driver.view("w")
        assert view.status.failure is not None
        assert "manifest unknown" in view.status.failure.message
        assert SECRET not in repr(view.status)
        assert SECRET not in repr(await driver.events())
        explanation = await driver.cluster.api().queries.explain("w")
        assert SECRET not in repr(explanation)


@virtual_time()
async def test_reads_are_monotonic(clock: VirtualClock) -> None:
    """``at_least`` waits for a revision, and says so where it is not reached in time."""
    from persys_core.ports.cluster_store import StoreUnavailableError

    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        await driver.apply("w")
        revision = driver.cluster.backend.revision
        follower = driver.cluster.replicas[1].scheduler
        view, freshness = await follower.queries.get_workload("w", at_least=revision)
        assert view.assignment is not None
        assert freshness.revision >= revision
        with pytest.raises(StoreUnavailableError, match="did not reach"):
            await follower.queries.summary(at_least=revision + 1000)
        await driver.clock.sleep(timedelta(seconds=1))
