from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.model.observation import AgentState, TaskStatus
from persys_core.model.spec import ComposeSpec, ContainerSpec, ManagedVolume
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.ports.agents import DeleteRequest
from persys_core.sim.agent import AgentModel, MachineState
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_journal import Happening, Journal
from persys_core.sim.agent_runtime import Runtime, RuntimeObject
from persys_core.sim.agent_settings import (
    Admission,
    AgentSettings,
    Latency,
    TaskOrder,
    existing_agent,
    our_agent,
)
from tests.unit.sim.support import START, Machine, request, seconds, spec


def test_an_apply_is_accepted_first_and_runs_later() -> None:
    """The reply says pending; the task goes pending, running, completed; then the workload runs."""
    machine = Machine()
    reply = machine.apply()
    assert reply.accepted
    assert reply.report is not None
    assert reply.report.task_status is TaskStatus.PENDING
    assert machine.state() is AgentState.PENDING
    machine.wait(0.06)
    report = machine.status()
    assert report is not None
    assert report.task_status is TaskStatus.RUNNING
    machine.wait(5)
    report = machine.status()
    assert report is not None
    assert (report.state, report.task_status) == (AgentState.RUNNING, TaskStatus.NONE)
    assert machine.model.running(machine.now) == {"w1": "r1"}


def test_listings_and_heartbeats_hide_tasks_in_flight() -> None:
    """During a long creation a listing says Unknown `container not found`, the status Pending."""
    machine = Machine()
    machine.apply(image="slow")
    machine.wait(10)
    (listed,) = machine.model.list(machine.now)
    assert (listed.state, listed.message) == (AgentState.UNKNOWN, "container not found")
    assert machine.model.heartbeat(machine.now).reports[0].state is AgentState.UNKNOWN
    assert machine.state() is AgentState.PENDING


def test_a_failed_apply_is_masked_by_the_next_look() -> None:
    """Existing agents show Unknown; the cause is in the metadata and in the history only."""
    machine = Machine()
    machine.apply(image="missing")
    machine.wait(5)
    report = machine.status()
    assert report is not None
    assert (report.state, report.message) == (AgentState.UNKNOWN, "container not found")
    assert "image not found" in report.metadata["last_error"]
    (action,) = machine.model.actions(machine.now, status="failed")
    assert action.error.startswith("failed to apply workload w1: [CREATE_FAILED]")


def test_our_agent_does_not_mask_a_failure() -> None:
    """Where failures are not masked the status is Failed with the cause."""
    machine = Machine(our_agent("n1"))
    machine.apply(image="missing")
    machine.wait(5)
    report = machine.status()
    assert report is not None
    assert report.state is AgentState.FAILED
    assert "image not found" in report.message


def test_a_compose_project_that_did_not_come_up_looks_stopped() -> None:
    """A failed `up` leaves a project without containers, which reads as Stopped."""
    machine = Machine()
    body = ComposeSpec("services:\n  a:\n    image: missing\n")
    machine.apply(of=spec(body=body))
    machine.wait(5)
    report = machine.status()
    assert report is not None
    assert (report.state, report.message) == (AgentState.STOPPED, "no containers")


def test_the_same_revision_is_skipped() -> None:
    """A second apply of a running revision creates and starts nothing."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    machine.apply()
    machine.wait(5)
    counts = machine.model.journal.counts
    assert (counts[Happening.CREATED], counts[Happening.STARTED]) == (1, 1)
    assert [task.skipped for task in machine.model.actions(machine.now)] == [False, True]


def test_a_changed_spec_under_the_same_revision_is_ignored() -> None:
    """Only the revision's text counts (decisions §2.5)."""
    machine = Machine()
    machine.apply(image="nginx:1")
    machine.wait(5)
    machine.apply(image="nginx:2")
    machine.wait(5)
    report = machine.status()
    assert report is not None
    assert report.metadata["container.image"] == "nginx:1"


def test_a_new_revision_replaces_the_old_one() -> None:
    """The old object is stopped before the new one is made: never two at once."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    machine.apply(revision="r2")
    machine.wait(5)
    assert machine.model.running(machine.now) == {"w1": "r2"}
    happened = [entry.what for entry in machine.model.journal.of("w1")]
    assert happened[-5:] == [
        Happening.APPLY,
        Happening.STOPPED,
        Happening.REMOVED,
        Happening.CREATED,
        Happening.STARTED,
    ]


def test_the_old_revision_is_gone_while_the_new_one_is_made() -> None:
    """Replacing stops first: during a long creation nothing runs."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    machine.apply(image="slow", revision="r2")
    machine.wait(5)
    assert machine.model.running(machine.now) == {}


def test_what_runs_is_not_started_twice() -> None:
    """A second start of a running object changes nothing and leaves no line."""
    journal = Journal()
    runtime = Runtime(journal)
    runtime.create(RuntimeObject("w1", "r1", spec(), Behaviour()), START)
    for _ in range(2):
        runtime.start("w1", START)
    assert journal.counts[Happening.STARTED] == 1


def test_delete_ends_in_status_not_found() -> None:
    """After the delete task the status is an error and nothing is left."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    assert machine.delete().accepted
    machine.wait(5)
    assert machine.status() is None
    assert machine.model.list(machine.now) == ()
    assert machine.model.running(machine.now) == {}


def test_deleting_an_unknown_id_reads_as_failed_until_the_next_task() -> None:
    """The failed delete speaks for the id until another task of it exists."""
    machine = Machine()
    machine.delete()
    machine.wait(1)
    report = machine.status()
    assert report is not None
    assert report.state is AgentState.FAILED
    assert report.message == (
        "failed to delete workload w1: workload not found: workload not found"
    )
    machine.apply()
    machine.wait(5)
    assert machine.state() is AgentState.RUNNING


def test_two_tasks_of_one_workload_may_run_in_reverse_on_an_existing_agent() -> None:
    """With chance in the pick-up, some seeds run the delete before the apply."""
    left = set()
    for seed in range(20):
        machine = Machine(seed=seed)
        machine.apply()
        machine.delete()
        machine.wait(10)
        left.add(bool(machine.model.running(machine.now)))
    assert left == {True, False}


def test_our_agent_runs_tasks_of_one_workload_in_order() -> None:
    """First in, first out, whatever the seed."""
    for seed in range(20):
        machine = Machine(our_agent("n1"), seed=seed)
        machine.apply()
        machine.apply(revision="r2")
        machine.delete()
        machine.wait(10)
        assert machine.model.running(machine.now) == {}
        errors = [task.error for task in machine.model.actions(machine.now)]
        assert errors == ["", "", ""]


def test_ten_workers_work_at_once_and_a_full_queue_makes_the_call_wait() -> None:
    """Ten tasks run, twenty wait, the next call carries its task out itself."""
    settings = evolve(existing_agent("n1"), create=Latency.of(60), pickup=Latency.of(0))
    machine = Machine(settings)
    for number in range(10):
        machine.apply(f"early{number}")
    machine.wait(0.001)
    replies = [machine.apply(f"w{number:02}") for number in range(21)]
    assert [reply.task is not None for reply in replies] == [False] * 20 + [True]
    machine.wait(0.001)
    statuses = [task.status for task in machine.model.actions(machine.now)]
    assert statuses.count(TaskStatus.RUNNING) == 11
    last = replies[-1].task
    assert last is not None
    assert machine.model.settled(last, machine.now) is None
    machine.wait(70)
    settled = machine.model.settled(last, machine.now)
    assert settled is not None
    assert settled.message == "workload applied successfully"
    statuses = [task.status for task in machine.model.actions(machine.now)]
    assert statuses.count(TaskStatus.RUNNING) == 10
    machine.wait(300)
    assert len(machine.model.running(machine.now)) == 31


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("outofcpu", "[RESOURCE_QUOTA_EXCEEDED]"),
        ("missing", "[CREATE_FAILED]"),
        ("nostart", "[START_FAILED]"),
    ],
)
def test_words_in_the_image_name_ask_for_failures(image: str, message: str) -> None:
    """A demo or a test names the failure that it wants."""
    machine = Machine()
    assert machine.apply(image=image).accepted
    machine.wait(10)
    (action,) = machine.model.actions(machine.now, status="failed")
    assert message in action.error


def test_refuse_turns_the_call_itself_away() -> None:
    """A refused apply leaves no task and no row (field report R01)."""
    machine = Machine()
    reply = machine.apply(image="refuse")
    assert not reply.accepted
    assert "[RESOURCE_QUOTA_EXCEEDED]" in reply.message
    assert machine.model.actions(machine.now) == ()
    assert machine.model.journal.counts[Happening.REFUSED] == 1


def test_flaky_images_fail_sometimes() -> None:
    """Over many applies some fail and some do not."""
    machine = Machine()
    for number in range(30):
        machine.apply(f"w{number}", image="flaky")
        machine.wait(5)
    assert 0 < len(machine.model.actions(machine.now, status="failed")) < 30


def test_a_plan_can_give_one_workload_a_behaviour() -> None:
    """An entry for an id wins over the image's name."""
    plan = FaultPlan(workloads={"w1": Behaviour(create_error="no space left")})
    model = AgentModel(existing_agent("n1"), START, plan=plan)
    model.apply(request("w1"), START)
    model.apply(request("w2"), START)
    later = START + seconds(10)
    assert set(model.running(later)) == {"w2"}


def test_capacity_admission_counts_requests() -> None:
    """With capacity admission a workload beyond the machine's size is turned away."""
    settings = evolve(existing_agent("n1"), cpu_millicores=250, admission=Admission.CAPACITY)
    machine = Machine(settings)
    for name in ("w1", "w2", "w3"):
        machine.apply(name)
        machine.wait(5)
    assert set(machine.model.running(machine.now)) == {"w1", "w2"}


def test_an_unsupported_type_fails_as_runtime_not_available() -> None:
    """The error text is the one that schedulers look for."""
    settings = evolve(existing_agent("n1"), workload_types=frozenset({WorkloadType.VM}))
    machine = Machine(settings)
    machine.apply()
    machine.wait(5)
    (action,) = machine.model.actions(machine.now)
    assert "runtime not available" in action.error


def test_a_reboot_keeps_the_state_and_starts_what_should_run() -> None:
    """Rows survive, everything stops, and the first local pass starts a project again."""
    machine = Machine()
    machine.apply(of=spec(body=ComposeSpec(inline_yaml="services: {}")))
    machine.apply("w2", desired=DesiredState.STOPPED)
    machine.wait(5)
    machine.model.power_off(machine.now)
    assert machine.model.running(machine.now) == {}
    machine.wait(60)
    machine.model.power_on(machine.now)
    machine.wait(5)
    assert machine.model.running(machine.now) == {"w1": "r1"}
    assert machine.model.actions(machine.now) == ()


def test_a_container_that_lost_its_machine_did_not_end_well() -> None:
    """After a loss of power its exit code is 255, so that it is not taken for completed."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    machine.model.power_off(machine.now)
    machine.wait(60)
    machine.model.power_on(machine.now)
    report = machine.model.status("w1", machine.now)
    assert report is not None
    assert report.state is AgentState.FAILED
    assert report.metadata["container.exit_code"] == "255"


def test_a_wiped_machine_comes_back_empty() -> None:
    """A lost disk loses rows, objects and volumes."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    machine.model.power_off(machine.now, wipe=True)
    machine.model.power_on(machine.now)
    machine.wait(60)
    assert machine.model.list(machine.now) == ()
    assert machine.model.running(machine.now) == {}


def test_a_killed_agent_loses_its_tasks_but_not_its_workloads() -> None:
    """What was accepted and not begun is lost, although the reply said applied."""
    machine = Machine()
    machine.apply()
    machine.wait(5)
    machine.apply("w2")
    machine.model.halt(machine.now)
    machine.wait(5)
    assert machine.model.running(machine.now) == {"w1": "r1"}
    machine.model.power_on(machine.now)
    machine.wait(60)
    assert machine.model.running(machine.now) == {"w1": "r1"}
    assert machine.status("w2") is None


def test_a_paused_agent_does_its_work_when_it_goes_on() -> None:
    """Tasks stand still; containers run on and exit."""
    machine = Machine()
    machine.apply("ends", image="exit0")
    machine.wait(4)
    machine.apply("w1")
    machine.model.pause(machine.now)
    machine.wait(3600)
    assert machine.model.running(machine.now) == {}
    machine.model.resume(machine.now)
    machine.wait(4)
    assert "w1" in machine.model.running(machine.now)


def test_boot_id_and_sequence_order_our_heartbeats() -> None:
    """The sequence grows within a boot and begins anew with the next (field report N07)."""
    machine = Machine(our_agent("n1"))
    first, second = (machine.model.heartbeat(machine.now) for _ in range(2))
    machine.model.halt(machine.now)
    machine.model.power_on(machine.now)
    third = machine.model.heartbeat(machine.now)
    assert (first.sequence, second.sequence, third.sequence) == (1, 2, 1)
    assert first.boot_id == second.boot_id != third.boot_id


def test_existing_agents_send_neither_boot_id_nor_revision() -> None:
    """Their beats carry states and no more; ours carry the revision."""
    old, new = Machine(), Machine(our_agent("n2"))
    for machine in (old, new):
        machine.apply()
        machine.wait(5)
    beat = old.model.heartbeat(old.now)
    assert (beat.boot_id, beat.sequence, beat.reports[0].revision_id) == ("", 0, "")
    assert beat.workload_usage == ()
    ours = new.model.heartbeat(new.now)
    assert ours.reports[0].revision_id == "r1"
    assert [usage.workload_id for usage in ours.workload_usage] == ["w1"]


def test_usage_is_made_up_but_repeats() -> None:
    """Equal seeds give equal numbers, within what the workload may plausibly use."""
    beats = []
    for _ in range(2):
        machine = Machine(our_agent("n1"))
        machine.apply()
        machine.wait(60)
        beats.append(machine.model.heartbeat(machine.now))
    assert beats[0].usage == beats[1].usage
    (usage,) = beats[0].workload_usage
    assert 0 < usage.cpu_percent <= 10
    assert 0 < usage.memory_bytes <= 64 * 1024 * 1024


def test_epochs_fence_our_agent_even_after_a_restart() -> None:
    """An epoch below one that was obeyed is refused; epoch 0 is a call without one."""
    machine = Machine(our_agent("n1"))
    assert machine.apply(epoch=5).accepted
    machine.model.halt(machine.now)
    machine.model.power_on(machine.now)
    assert not machine.apply("w2", epoch=4).accepted
    assert not machine.model.delete(DeleteRequest("w1", 4), machine.now).accepted
    assert machine.apply("w3").accepted


@pytest.mark.parametrize(
    ("settings", "asked", "left"),
    [
        (existing_agent("n1"), False, {"local:keep"}),
        (our_agent("n1"), False, {"local:data", "local:keep"}),
        (our_agent("n1"), True, {"local:keep"}),
    ],
    ids=["existing", "ours", "ours-asked"],
)
def test_volume_data_goes_with_the_delete(
    settings: AgentSettings, asked: bool, left: set[str]
) -> None:
    """Existing agents remove Delete-policy data always, ours only when told; Retain stays."""
    volumes = (ManagedVolume("data"), ManagedVolume("keep", retain_policy="Retain"))
    machine = Machine(settings)
    machine.apply(of=spec(body=ContainerSpec("db", managed_volumes=volumes)))
    machine.wait(5)
    machine.delete(volumes=asked)
    machine.wait(5)
    assert machine.model.volumes(machine.now) == left


def test_an_unknown_storage_driver_fails_the_apply() -> None:
    """The agent names the driver that it does not have."""
    machine = Machine()
    volumes = (ManagedVolume("data", driver="nfs"),)
    machine.apply(of=spec(body=ContainerSpec("db", managed_volumes=volumes)))
    machine.wait(5)
    (action,) = machine.model.actions(machine.now)
    assert 'storage driver "nfs" is not registered' in action.error


def test_docker_restarts_by_policy() -> None:
    """`on-failure` restarts a crash with growing waits; between them the state is Pending."""
    machine = Machine()
    machine.apply(of=spec("crash", restart=RestartPolicy.ON_FAILURE))
    machine.wait(600)
    machine.model.catch_up(machine.now)
    journal = machine.model.journal
    assert journal.counts[Happening.STARTED] > 5
    assert journal.counts[Happening.CREATED] == 1


def test_the_same_seed_gives_the_same_journal() -> None:
    """A run replays from its seed, line by line."""

    def journal(seed: int) -> list[object]:
        machine = Machine(seed=seed)
        for number in range(20):
            machine.apply(f"w{number}", image=("flaky", "crash", "exit0")[number % 3])
            machine.wait(1)
        machine.wait(600)
        machine.status()
        return list(machine.model.journal.entries)

    assert journal(3) == journal(3) != journal(4)


def test_one_long_step_equals_many_short_ones() -> None:
    """What happens does not depend on how often the model is looked at."""
    often, once = Machine(), Machine()
    for machine in (often, once):
        machine.apply(image="exit0")
    for _ in range(600):
        often.wait(0.5)
        often.model.running(often.now)
    once.wait(300)
    once.model.running(once.now)
    assert often.model.journal.entries == once.model.journal.entries


def test_time_does_not_go_back() -> None:
    """A call with an older instant counts as made at the latest one."""
    machine = Machine()
    machine.apply()
    machine.wait(60)
    assert machine.state() is AgentState.RUNNING
    assert machine.model.status("w1", START) is not None
    assert machine.model.journal.entries[-1].at > START


def test_a_machine_that_is_off_plans_nothing() -> None:
    """Nothing happens by itself on a machine without power."""
    machine = Machine()
    assert machine.model.next_event_at() is not None
    machine.model.power_off(machine.now)
    assert machine.model.state is MachineState.OFF
    assert machine.model.next_event_at() is None


def test_fifo_is_a_setting_of_its_own() -> None:
    """An existing agent with ordered tasks never leaves a deleted workload behind."""
    for seed in range(10):
        machine = Machine(evolve(existing_agent("n1"), task_order=TaskOrder.FIFO), seed=seed)
        machine.apply()
        machine.delete()
        machine.wait(timedelta(minutes=2).total_seconds())
        assert machine.status() is None


def test_a_clock_that_jumped_shows_in_what_is_said_now() -> None:
    """Beats and reports carry the machine's own time; what happens on it goes on as before."""
    machine = Machine(our_agent("n1"))
    machine.apply()
    machine.wait(10)
    machine.model.set_clock(-seconds(3600))
    beat = machine.model.heartbeat(machine.now)
    wrong = machine.now - seconds(3600)
    assert beat.usage is not None
    assert beat.sent_at == beat.usage.reported_at == beat.reports[0].reported_at == wrong
    (listed,) = machine.model.list(machine.now)
    asked = machine.status()
    assert asked is not None
    assert asked.reported_at == listed.reported_at == wrong
    assert machine.model.running(machine.now) == {"w1": "r1"}
    machine.model.stop_below("w1", machine.now)
    (ended,) = machine.model.list(machine.now)
    assert ended.metadata["container.finished_at"] == wrong.isoformat()


def test_what_somebody_does_below_the_agent_is_only_seen_by_looking() -> None:
    """A stop looks like an end, a removal like a container that was never made."""
    machine = Machine()
    for name in ("w1", "w2"):
        machine.apply(name)
    machine.wait(10)
    machine.model.stop_below("w1", machine.now)
    machine.model.remove_below("w2", machine.now)
    assert [row.workload_id for row in machine.model.rows(machine.now)] == ["w1", "w2"]
    assert machine.model.running(machine.now) == {}
    assert machine.model.is_at_rest("w1", machine.now)
    stopped, removed = machine.model.list(machine.now)
    assert (stopped.state, stopped.metadata["container.exit_code"]) == (AgentState.STOPPED, "0")
    assert (removed.state, removed.message) == (AgentState.UNKNOWN, "container not found")


def test_what_was_removed_below_the_agent_before_its_start_fails_to_start() -> None:
    """The agent finds nothing to start, as with a real runtime."""
    machine = Machine(evolve(existing_agent("n1"), create=Latency.of(1), start=Latency.of(5)))
    machine.apply()
    machine.wait(3)
    machine.model.remove_below("w1", machine.now)
    machine.wait(5)
    report = machine.status()
    assert report is not None
    assert report.metadata["last_error"] == "container not found"
