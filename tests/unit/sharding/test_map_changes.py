"""The next map: who is there, and how much of the past it keeps."""

from persys_core.model.replica import ShardMap, ShardMembers
from persys_core.sharding.map_changes import next_map


def test_the_first_map_names_everybody() -> None:
    """Nobody, no map."""
    assert next_map(None, [], {}) is None
    assert next_map(None, ["b", "a"], {}) == ShardMap(1, ("a", "b"))


def test_a_map_that_is_right_stays() -> None:
    """Acknowledgements alone are no reason for a new version."""
    assert next_map(ShardMap(3, ("a", "b")), ["b", "a"], {"a": 3, "b": 2}) is None


def test_the_past_is_kept_as_far_as_somebody_may_act_by_it() -> None:
    """``b`` acknowledged version 2 and may not know more."""
    past = (ShardMembers(1, ("a",)), ShardMembers(2, ("a", "b")))
    following = next_map(ShardMap(3, ("a", "b", "c"), past), ["a", "b"], {"a": 3, "b": 2})
    assert following == ShardMap(
        4, ("a", "b"), (ShardMembers(2, ("a", "b")), ShardMembers(3, ("a", "b", "c")))
    )


def test_who_left_keeps_no_past() -> None:
    """Its record is gone, so it acts no more."""
    past = (ShardMembers(1, ("a", "b")),)
    following = next_map(ShardMap(2, ("a", "b", "c"), past), ["a", "c"], {"a": 2, "c": 2})
    assert following == ShardMap(3, ("a", "c"), (ShardMembers(2, ("a", "b", "c")),))


def test_a_map_that_was_lost_does_not_begin_anew() -> None:
    """What was acknowledged before stays below the new version."""
    assert next_map(None, ["a", "b"], {"a": 7, "b": 6}) == ShardMap(8, ("a", "b"))
