"""A plan says what the apply does, does nothing, and can be applied exactly."""

import pytest
from attrs import evolve

from persys_core.control.answers import Plan
from persys_core.control.requests import ApplyWorkload
from persys_core.control.scheduler import Scheduler
from persys_core.model.errors import InvalidInputError, NotFoundError, RefusedError
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState
from persys_core.placement.explain import Verdict
from persys_core.ports.cluster_store import Key
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster, wish

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-XYZ"


async def plan(driver: Driver, request: ApplyWorkload, max_examples: int = 3) -> Plan:
    """What the apply of ``request`` would do."""
    found, _ = await driver.cluster.api().queries.plan(request, max_examples=max_examples)
    return found


def expecting(
    revision: int, workload_id: str = "w", spec: WorkloadSpec | None = None
) -> ApplyWorkload:
    """An apply that holds only for one revision of the record."""
    return evolve(wish(workload_id, spec), expected_revision=revision)


def held(scheduler: Scheduler) -> set[str]:
    """The nodes on which something is held for a placement."""
    nodes = scheduler.view.all(Key.node("").kind)
    return {node for node in nodes if scheduler.reservations.in_flight(node)}


@virtual_time()
async def test_the_apply_does_what_was_planned(clock: VirtualClock) -> None:
    """On an unchanged view the apply takes the planned node, revision and outcome, whatever else
    runs there already."""
    async with running_cluster(clock, *(machine(f"n{n}") for n in range(5))) as driver:
        for number in range(12):
            name, spec = f"w{number}", container(cpu=700 + 100 * (number % 3))
            planned = await plan(driver, wish(name, spec))
            applied = await driver.apply(name, spec)
            assert applied.explanation is not None
            assert (planned.outcome, planned.revision_id, planned.node_id) == (
                applied.outcome, applied.revision_id, applied.node_id,
            )  # fmt: skip
            assert planned.explanation.score == applied.explanation.score
            assert planned.explanation.candidates[0].node_id == planned.node_id


@virtual_time()
async def test_a_plan_leaves_no_trace(clock: VirtualClock) -> None:
    """Nothing is written, held or told, so the same plan again is the same answer; even after so
    many that held placements would have filled the node."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        scheduler = driver.cluster.api()
        revision, events = driver.cluster.backend.revision, await driver.events()
        first = await plan(driver, wish("w", container(cpu=3000)))
        for _ in range(10):
            assert await plan(driver, wish("w", container(cpu=3000))) == first
        assert held(scheduler) == set()
        assert driver.cluster.backend.revision == revision
        assert await driver.events() == events
        assert first.expected_revision == 0


@virtual_time()
async def test_a_plan_that_finds_no_node_says_why(clock: VirtualClock) -> None:
    """C01: the reasons in numbers with example nodes; and the wish would be stored all the same."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        found = await plan(driver, wish("big", container(cpu=64_000)), max_examples=1)
        assert (found.outcome, found.node_id) == ("Created", "")
        assert found.explanation.verdict is Verdict.UNSCHEDULABLE
        [reason] = found.explanation.reasons
        assert (reason.code, reason.nodes, len(reason.examples)) == ("cpu", 2, 1)
        applied = await driver.apply("big", container(cpu=64_000))
        assert applied.explanation is not None
        assert applied.explanation.summary == found.explanation.summary


@virtual_time()
async def test_every_outcome_can_be_planned(clock: VirtualClock) -> None:
    """Created, Unchanged, Updated and DesiredStateChanged, each with what is said of it."""
    async with running_cluster(clock, machine("n1")) as driver:
        created = await plan(driver, evolve(wish("w"), desired_state=DesiredState.STOPPED))
        assert (created.outcome, created.node_id) == ("Created", "")
        assert created.explanation.verdict is Verdict.NOT_NEEDED
        await driver.apply("w")
        await driver.wait(seconds=20)
        same = await plan(driver, wish("w"))
        assert (same.outcome, same.node_id, same.changes) == ("Unchanged", "n1", ())
        assert same.explanation.verdict is Verdict.PLACED
        updated = await plan(driver, wish("w", container("nginx:2")))
        assert (updated.outcome, updated.node_id) == ("Updated", "n1")
        assert [(c.field, c.old, c.new) for c in updated.changes] == [
            ("spec.container.image", "nginx", "nginx:2")
        ]
        stopped = await plan(driver, wish("w", None, DesiredState.STOPPED))
        assert stopped.outcome == "DesiredStateChanged"
        assert [(c.field, c.old, c.new) for c in stopped.changes] == [
            ("desired_state", "Running", "Stopped")
        ]
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_a_share_that_cannot_grow_is_planned_as_deferred(clock: VirtualClock) -> None:
    """The old revision goes on, and the plan says what the node lacks."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        found = await plan(driver, wish("w", container(cpu=9000)))
        assert (found.outcome, found.node_id) == ("Updated", "n1")
        assert found.explanation.verdict is Verdict.DEFERRED
        assert "no room to grow" in found.explanation.summary


@virtual_time()
async def test_what_an_apply_would_refuse_a_plan_refuses(clock: VirtualClock) -> None:
    """The same errors, with the same words."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("going")
        await driver.wait(seconds=20)
        await driver.cluster.api().admission.delete_workload("going", force=False)
        for request, error in (
            (wish("none", None, DesiredState.STOPPED), NotFoundError),
            (wish("going", container("other")), RefusedError),
            (ApplyWorkload("w"), InvalidInputError),
            (expecting(-1), InvalidInputError),
        ):
            with pytest.raises(error) as planned:
                await plan(driver, request)
            with pytest.raises(error) as applied:
                await driver.cluster.api().admission.apply_workload(request)
            assert str(planned.value) == str(applied.value)


@virtual_time()
async def test_a_plan_is_applied_exactly_or_not_at_all(clock: VirtualClock) -> None:
    """The revision of the plan holds once; after any other change both revisions are named and
    nothing is stored."""
    async with running_cluster(clock, machine("n1")) as driver:
        admission = driver.cluster.api().admission
        first = await plan(driver, wish("w"))
        await admission.apply_workload(expecting(first.expected_revision))
        with pytest.raises(RefusedError, match=r'stale plan: workload "w" was not stored when'):
            await admission.apply_workload(expecting(0))
        second = await plan(driver, wish("w", container("b")))
        await driver.apply("w", container("c"))
        stored = driver.cluster.backend.revision
        record = driver.cluster.api().view.workload("w")
        assert record is not None
        with pytest.raises(RefusedError) as refused:
            await admission.apply_workload(expecting(second.expected_revision, spec=container("b")))
        assert f"was at revision {second.expected_revision} when" in str(refused.value)
        assert f"is at revision {record.revision} now;" in str(refused.value)
        assert driver.cluster.backend.revision == stored
        with pytest.raises(RefusedError, match="and is not stored now"):
            await admission.apply_workload(expecting(7, "absent"))


@virtual_time()
async def test_an_expected_revision_is_compared_with_the_store(clock: VirtualClock) -> None:
    """A replica that has not heard of the latest change yet neither refuses a revision that it does
    not know, nor takes an old one for the present one."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        one, two = (replica.scheduler for replica in driver.cluster.replicas)
        created = await plan(driver, wish("w"))
        await one.admission.apply_workload(expecting(created.expected_revision))
        planned, _ = await one.queries.plan(wish("w", container("b")))
        # No await in between that would let the second replica's watch run first.
        answer = await two.admission.apply_workload(
            expecting(planned.expected_revision, spec=container("b"))
        )
        assert answer.outcome == "Updated"
        with pytest.raises(RefusedError):
            await one.admission.apply_workload(
                expecting(planned.expected_revision, spec=container("c"))
            )
        await one.admission.delete_workload("w", force=True)
        again = await two.admission.apply_workload(expecting(0))
        assert again.outcome == "Created"


@virtual_time()
async def test_two_who_apply_one_plan_are_told_apart(clock: VirtualClock) -> None:
    """Of two applies with the same expected revision, at two replicas, one is carried out."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        outcomes = []
        for replica, image in zip(driver.cluster.replicas, ("a", "b"), strict=True):
            try:
                answer = await replica.scheduler.admission.apply_workload(
                    expecting(0, spec=container(image))
                )
                outcomes.append(str(answer.outcome))
            except RefusedError:
                outcomes.append("refused")
        assert sorted(outcomes) == ["Created", "refused"]


@virtual_time()
async def test_secrets_are_masked_in_the_changes(clock: VirtualClock) -> None:
    """A04: a changed secret is listed, and neither value is shown, wherever it stands."""
    async with running_cluster(clock, machine("n1")) as driver:
        spec = container(env={"DB_PASSWORD": SECRET, "URL": f"http://u:{SECRET}@h/"})
        created = await plan(driver, wish("w", spec))
        await driver.apply("w", spec)
        other = container(
            f"img-{SECRET}", env={"DB_PASSWORD": SECRET + "2", "URL": f"http://u:{SECRET}@h/"}
        )
        changed = await plan(driver, wish("w", other))
        assert SECRET not in repr(created) + repr(changed)
        assert [(c.field, c.old, c.new) for c in changed.changes] == [
            ("spec.container.image", "nginx", "img-***"),
            ("spec.container.env[DB_PASSWORD]", "***", "***"),
        ]


@virtual_time()
async def test_a_changed_selector_says_that_it_moves_nothing(clock: VirtualClock) -> None:
    """The plan and, after the apply, the explanation say where it stays, why that is odd, and what
    would move it; a selector that the node matches says nothing."""
    selector = "persys.scheduling.node_selector.disk"
    settings = evolve(machine("n1"), labels={"disk": "hdd"})
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", container())
        await driver.wait(seconds=20)
        assert (await plan(driver, wish("w", container(metadata={selector: "hdd"})))).notes == ()
        asked = container(metadata={selector: "ssd", "persys.scheduling.exclude_nodes": "n1"})
        planned = await plan(driver, wish("w", asked))
        stays = (
            "stays on n1, which no longer matches selector disk=ssd and is one of the nodes that it"
            " excludes"
        )
        move = "delete and apply it, or drain the node, to move it"
        assert planned.notes == (f"{stays}; {move}",)
        await driver.apply("w", asked)
        await driver.wait(seconds=20)
        explained = await driver.cluster.api().queries.explain("w")
        assert explained.summary.endswith(f"; it {stays}")
        assert explained.next_step.endswith(move)
        assert await driver.status("w") == "Running"
