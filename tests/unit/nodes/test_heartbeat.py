from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from persys_core.nodes.heartbeat import BeatMemory, BeatOrder, BeatVerdict, begin_boot, judge_beat

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def verdicts(*beats: BeatOrder) -> str:
    """One letter per beat in the order of arrival: a accepted, s stale."""
    memory: BeatMemory | None = None
    letters = ""
    for beat in beats:
        verdict, memory = judge_beat(memory, beat)
        letters += verdict[0]
    return letters


def numbered(boot_id: str, sequence: int) -> BeatOrder:
    return BeatOrder(boot_id, sequence, T0)


def timed(seconds: float) -> BeatOrder:
    return BeatOrder(sent_at=T0 + timedelta(seconds=seconds))


def test_an_older_beat_of_the_same_boot_is_dropped() -> None:
    """Beat 5, then 4: the later arrival does not overwrite the newer state (N07)."""
    assert verdicts(numbered("a", 5), numbered("a", 4), numbered("a", 6)) == "asa"


def test_a_boot_that_registers_again_is_the_last_one() -> None:
    """One that another agent replaced for a while, and that has the node again, is not late."""
    memory = begin_boot(begin_boot(None, "a"), "b")
    assert memory.ended_boots == ("a",)
    memory = begin_boot(memory, "a")
    assert memory.ended_boots == ("b",)
    assert begin_boot(memory, "a") is memory
    assert judge_beat(memory, numbered("a", 1))[0] is BeatVerdict.ACCEPT


def test_a_repeated_beat_is_dropped() -> None:
    """A duplicated message says nothing new."""
    assert verdicts(numbered("a", 5), numbered("a", 5)) == "as"


def test_a_new_boot_begins_anew() -> None:
    """A restarted agent counts from 1 again and is heard at once (N07)."""
    assert verdicts(numbered("a", 5), numbered("b", 1), numbered("b", 2)) == "aaa"


def test_a_late_beat_of_an_ended_boot_is_dropped() -> None:
    """What the agent sent before its restart never overwrites what it says since."""
    assert (
        verdicts(numbered("a", 5), numbered("b", 1), numbered("a", 6), numbered("b", 2)) == "aasa"
    )


def test_beats_without_a_boot_go_by_their_time() -> None:
    """Up to a minute older is late; equal or newer counts (decisions §2.10)."""
    assert verdicts(timed(100), timed(99)) == "as"
    assert verdicts(timed(100), timed(40)) == "as"
    assert verdicts(timed(100), timed(100), timed(101)) == "aaa"


def test_a_larger_step_back_is_a_clock_change() -> None:
    """A clock that was set back is believed from then on, and the node is not deaf for hours."""
    assert verdicts(timed(100), timed(39), timed(49)) == "aaa"


def test_beats_without_any_order_count() -> None:
    """An agent that says nothing of order is believed."""
    assert verdicts(BeatOrder(), BeatOrder(), timed(5), BeatOrder(), timed(4)) == "aaaaa"


def test_an_agent_may_gain_or_lose_its_boot_id() -> None:
    """Upgrades and downgrades of an agent are heard at once."""
    assert verdicts(timed(0), numbered("a", 1), timed(1)) == "aaa"


def test_memory_is_bounded() -> None:
    """An agent that crashes all day leaves a handful of boots behind."""
    memory: BeatMemory | None = None
    for boot in range(1000):
        _, memory = judge_beat(memory, numbered(f"b{boot}", 1))
    assert memory is not None
    assert len(memory.ended_boots) <= 8


@given(st.lists(st.integers(1, 30), max_size=60))
def test_what_counts_only_grows(sequences: list[int]) -> None:
    """Whatever the network does to the order, the accepted beats of a boot are in order."""
    memory: BeatMemory | None = None
    accepted = []
    for sequence in sequences:
        verdict, memory = judge_beat(memory, numbered("a", sequence))
        if verdict is BeatVerdict.ACCEPT:
            accepted.append(sequence)
    assert accepted == sorted(set(accepted))
    assert max(accepted, default=0) == max(sequences, default=0)
