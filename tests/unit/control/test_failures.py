"""What fails is tried again, moved or given up by the rules, and never in a storm."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest
from attrs import evolve

from persys_adapters.records.codec import encode
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.model.workload import FailureKind
from persys_core.ports.agents import Agents, ApplyOutcome, ApplyRequest, Refused
from persys_core.ports.cluster_store import Commit, Key, Put
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_settings import AgentSettings, existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import container, machine, running_cluster

pytestmark = pytest.mark.slow


class InvalidSpecAgents:
    """Agents that refuse every apply for its spec, and pass everything else on."""

    applies = 0

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        """Refuse."""
        InvalidSpecAgents.applies += 1
        return Refused("[INVALID_SPEC] image name is malformed", "invalid_spec")

    def __getattr__(self, name: str) -> object:
        return getattr(self._agents, name)


class RefusesBadImages:
    """Agents that refuse whatever asks for the image ``bad``, a stop of it too."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        """Refuse the image, pass on the rest."""
        if isinstance(request.spec.body, ContainerSpec) and request.spec.body.image == "bad":
            return Refused("[INVALID_SPEC] image name is malformed", "invalid_spec")
        return await self._agents.apply(node, request, timeout)

    def __getattr__(self, name: str) -> object:
        return getattr(self._agents, name)


BOTH_AGENTS = pytest.mark.parametrize(
    "settings",
    [machine("n1"), evolve(existing_agent("n1"), cpu_millicores=4000)],
    ids=["our-agent", "existing-agent"],
)


@BOTH_AGENTS
@virtual_time()
async def test_admission_refusals_make_no_storm(
    clock: VirtualClock, settings: AgentSettings
) -> None:
    """R01: an agent that always answers out of CPU sees no more applies than the backoff table
    allows, one record changes in place, and events are aggregated."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", container("refuse"))
        await driver.wait(minutes=10)
        assert 1 < driver.calls("apply", "w") <= 9
        workloads, _ = await driver.cluster.api().queries.list_workloads()
        assert len(workloads) == 1
        per_type = Counter(event.type for event in await driver.events(workload_id="w"))
        assert max(per_type.values()) <= 10


@virtual_time()
async def test_refusing_node_is_left_for_another(clock: VirtualClock) -> None:
    """R01: a refusal counts against (workload, node); the next try goes elsewhere."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        await driver.apply("w", container("outofcpu"))
        await driver.wait(minutes=1)
        nodes = [
            model.settings.node_id
            for model in driver.cluster.machines
            if driver.calls("apply", "w", model.settings.node_id)
        ]
        assert sorted(nodes) == ["n1", "n2"]


@virtual_time()
async def test_unreachable_agent_spends_no_attempt(clock: VirtualClock) -> None:
    """R03: half an hour without an answer spends nothing; once back, the workload runs."""
    async with running_cluster(clock, machine("n1")) as driver:
        driver.cluster.machines.network.cut("n1", from_node=False)
        await driver.apply("w")
        await driver.wait(minutes=30)
        view = await driver.view("w")
        assert view.status.retry.attempts == 0
        assert view.status.reason is not None
        assert view.status.reason.code == "agent_unreachable"
        driver.cluster.machines.network.cut("n1", to_node=False, from_node=False)
        await driver.wait(minutes=4)
        assert await driver.status("w") == "Running"


@BOTH_AGENTS
@virtual_time()
async def test_missing_image_fails_once_after_the_budget(
    clock: VirtualClock, settings: AgentSettings
) -> None:
    """R03: image not found spends the budget, then fails once, with the agent's reason; a masked
    failure of an existing agent counts the same (decisions §2.2)."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", container("missing"))
        await driver.wait(hours=1)
        view = await driver.view("w")
        assert (view.status.status, view.status.retry.attempts) == ("Failed", 5)
        assert view.status.failure is not None
        assert view.status.failure.code == "image_not_found"
        assert "manifest unknown" in view.status.failure.message
        assert len(await driver.events("WorkloadFailed", "w")) == 1
        assert driver.calls("apply", "w") == 6


@virtual_time()
async def test_permanent_failure_fails_at_once_and_retry_resets(clock: VirtualClock) -> None:
    """R03: an invalid spec fails on the first try; a retry by hand counts anew."""
    InvalidSpecAgents.applies = 0
    wrap = cast("Callable[[Agents], Agents]", InvalidSpecAgents)
    async with running_cluster(clock, machine("n1"), wrap_agents=wrap) as driver:
        await driver.apply("w")
        await driver.wait(hours=1)
        view = await driver.view("w")
        assert view.status.failure is not None
        assert view.status.failure.kind is FailureKind.PERMANENT
        assert (view.status.status, view.status.retry.attempts) == ("Failed", 1)
        assert InvalidSpecAgents.applies == 1
        await driver.cluster.api().admission.retry_workload("w")
        await driver.wait(seconds=5)
        assert InvalidSpecAgents.applies == 2


@virtual_time()
async def test_stable_run_renews_the_budget(clock: VirtualClock) -> None:
    """Defect C7: a workload that runs for more than ten minutes before each crash never fails."""
    minutes = timedelta(minutes=11)
    plan = FaultPlan(run_for=(minutes, minutes))
    async with running_cluster(clock, machine("n1"), plan=plan) as driver:
        await driver.apply("w", container("crash"))
        await driver.wait(hours=3)
        assert await driver.events("WorkloadFailed", "w") == []
        assert len(await driver.events("RetryTriggered", "w")) > 10


@virtual_time()
async def test_update_while_the_node_was_away(clock: VirtualClock) -> None:
    """R04: a revision that changed while its node was silent is applied exactly once when the
    node is back."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container("nginx:1"))
        await driver.wait(seconds=20)
        driver.cluster.machines.network.cut("n1")
        await driver.wait(minutes=1)
        before = driver.calls("apply", "w")
        await driver.apply("w", container("nginx:2"))
        await driver.wait(seconds=30)
        assert driver.calls("apply", "w") == before
        driver.cluster.machines.network.cut("n1", to_node=False, from_node=False)
        await driver.wait(minutes=2)
        assert driver.calls("apply", "w") == before + 1
        assert await driver.status("w") == "Running"


@BOTH_AGENTS
@virtual_time()
async def test_finished_job_is_told_to_rest(clock: VirtualClock, settings: AgentSettings) -> None:
    """Decisions §2.11: a container that exits 0 is Completed, its agent is told to stop it, and
    even an agent that restarts such containers for ever lets it rest."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("job", container("exit0"))
        await driver.wait(minutes=5)
        assert await driver.status("job") == "Completed"
        started = driver.calls("started", "job")
        await driver.wait(hours=1)
        assert driver.calls("started", "job") == started == 1
        assert driver.calls("apply", "job") == 2


@BOTH_AGENTS
@virtual_time()
async def test_long_pull_is_waited_for(clock: VirtualClock, settings: AgentSettings) -> None:
    """Decisions §2.3: while the agent's task runs, nothing is sent again."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", container("slow"))
        await driver.wait(minutes=10)
        assert await driver.status("w") == "Running"
        assert driver.calls("apply", "w") == 1


@BOTH_AGENTS
@virtual_time()
async def test_stop_and_start_keep_spec_and_revision(
    clock: VirtualClock, settings: AgentSettings
) -> None:
    """Decisions §2.6: only the desired state changes."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w")
        await driver.wait(seconds=30)
        revision = (await driver.view("w")).workload.revision_id
        answer = await driver.desire("w", DesiredState.STOPPED)
        assert answer.outcome == "DesiredStateChanged"
        await driver.wait(minutes=1)
        assert await driver.status("w") == "Stopped"
        await driver.desire("w", DesiredState.RUNNING)
        await driver.wait(minutes=1)
        view = await driver.view("w")
        assert (view.status.status, view.workload.revision_id) == ("Running", revision)


@BOTH_AGENTS
@virtual_time()
async def test_container_removed_by_hand_comes_back(
    clock: VirtualClock, settings: AgentSettings
) -> None:
    """A wiped node gets its work again, once, after it registers."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w")
        await driver.wait(seconds=30)
        driver.cluster.machines.kill("n1", wipe=True)
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=3)
        assert await driver.status("w") == "Running"
        assert driver.calls("apply", "w") == 2


@BOTH_AGENTS
@virtual_time()
async def test_failed_compose_is_seen(clock: VirtualClock, settings: AgentSettings) -> None:
    """A Compose application whose `up` failed is a failure, though the agent says stopped."""
    spec = WorkloadSpec(
        WorkloadType.COMPOSE,
        Resources.of(cpu_millicores=100),
        ComposeSpec("services:\n  a:\n    image: missing\n"),
    )
    async with running_cluster(clock, settings) as driver:
        await driver.apply("shop", spec)
        await driver.wait(seconds=4)
        view = await driver.view("shop")
        assert view.status.status == "RetryPending"
        assert view.status.failure is not None
        assert view.status.failure.code == "image_not_found"


@virtual_time()
async def test_reapply_backs_off(clock: VirtualClock) -> None:
    """Work that vanishes again and again without a reason is sent after 45 s, 90 s, 3 min …"""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=30)
        sent = []
        for _ in range(120):
            model = driver.cluster.machines.model("n1")
            if (await driver.view("w")).status.status != "Running":
                sent.append(driver.calls("apply", "w"))
            driver.cluster.machines.kill("n1", wipe=True)
            driver.cluster.machines.revive("n1")
            del model
            await driver.clock.sleep(timedelta(seconds=1))
        assert driver.calls("apply", "w") <= 5


@virtual_time()
async def test_a_failed_update_holds_its_share_while_the_old_revision_runs(
    clock: VirtualClock,
) -> None:
    """Given up is the new revision; the old one runs on, since the agent refuses the stop as well,
    so nothing else may be placed on its share."""
    async with running_cluster(
        clock, machine("n1"), wrap_agents=lambda agents: cast(Agents, RefusesBadImages(agents))
    ) as driver:
        await driver.apply("w", container(cpu=3000))
        await driver.wait(seconds=20)
        await driver.apply("w", container("bad", cpu=3000))
        await driver.wait(minutes=5)
        assert await driver.status("w") == "Failed"
        await driver.apply("other", container(cpu=3000))
        await driver.wait(minutes=2)
        assert list(driver.cluster.machines.model("n1").running(clock.now())) == ["w"]
        assert await driver.status("other") == "Pending"


@virtual_time()
async def test_what_failed_and_rests_holds_no_share(clock: VirtualClock) -> None:
    """A start that was refused for good leaves its room to others."""
    async with running_cluster(
        clock, machine("n1"), wrap_agents=lambda agents: cast(Agents, RefusesBadImages(agents))
    ) as driver:
        await driver.apply("w", container("bad", cpu=3000))
        await driver.wait(minutes=1)
        assert await driver.status("w") == "Failed"
        await driver.apply("other", container(cpu=3000))
        await driver.wait(seconds=20)
        assert await driver.status("other") == "Running"


@virtual_time()
async def test_given_up_stays_given_up(clock: VirtualClock) -> None:
    """Defects C9, C10: what failed for good costs no write, no event and no call; not while its
    node runs, and not when that node is lost and no other is there."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container("missing"))
        await driver.wait(hours=1)
        assert await driver.status("w") == "Failed"
        told = len(await driver.events(workload_id="w"))
        revision, calls = driver.cluster.backend.revision, driver.calls("apply")
        await driver.wait(hours=1)
        driver.cluster.machines.kill("n1")
        await driver.wait(hours=3)
        assert await driver.status("w") == "Failed"
        assert len(await driver.events(workload_id="w")) == told
        assert (driver.cluster.backend.revision, driver.calls("apply")) == (revision, calls)


@virtual_time()
async def test_a_new_revision_shows_nothing_of_old_failures(clock: VirtualClock) -> None:
    """Defect C8: after an update that works, and after a retry, no old failure is shown."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container("missing"))
        await driver.wait(hours=1)
        await driver.cluster.api().admission.retry_workload("w")
        retried = (await driver.view("w")).status
        assert (retried.failure, retried.reason, retried.retry.attempts) == (None, None, 0)
        await driver.wait(hours=1)
        await driver.apply("w", container("nginx"))
        await driver.wait(minutes=1)
        status = (await driver.view("w")).status
        assert (status.status, status.failure, status.reason) == ("Running", None, None)
        assert (status.retry.attempts, status.retry.exhausted) == (0, False)


@virtual_time()
async def test_a_node_without_the_runtime_is_left_for_another(clock: VirtualClock) -> None:
    """Defect C11: a type that a node offers and cannot run shows only in what became of the
    apply; the work then goes to a node that can."""
    no_vms = frozenset({WorkloadType.CONTAINER})
    spec = WorkloadSpec(
        WorkloadType.COMPOSE,
        Resources.of(cpu_millicores=100),
        ComposeSpec("services:\n  a:\n    image: nginx\n"),
    )
    async with running_cluster(clock, evolve(machine("n1"), workload_types=no_vms)) as driver:
        offer = driver.cluster.machines.model("n1").registration()
        await driver.cluster.api().admission.register_node(
            evolve(offer, workload_types=frozenset(WorkloadType))
        )
        await driver.apply("shop", spec)
        await driver.wait(seconds=10)
        failure = (await driver.view("shop")).status.failure
        assert failure is not None
        assert failure.kind is FailureKind.INFRASTRUCTURE
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=5)
        assert (await driver.status("shop"), await driver.node_of("shop")) == ("Running", "n2")


@virtual_time()
async def test_a_record_does_not_grow_with_its_failures(clock: VirtualClock) -> None:
    """Defect C5: after three hours of crashes the status record is no larger than after two."""
    sizes: list[int] = []

    def measure(commit: Commit, _: int) -> None:
        sizes.extend(
            len(encode(write.key, write.value))
            for write in commit.writes
            if isinstance(write, Put) and write.key == Key.status("w")
        )

    minutes = timedelta(minutes=11)
    plan = FaultPlan(run_for=(minutes, minutes))
    async with running_cluster(clock, machine("n1"), plan=plan) as driver:
        driver.cluster.backend.on_commit(measure)
        await driver.apply("w", container("crash"))
        await driver.wait(hours=2)
        before = max(sizes)
        sizes.clear()
        await driver.wait(hours=1)
        assert len(sizes) > 10
        assert max(sizes) <= before + 16
