"""Elastic mode's one promise: at every moment each node has one owner at most."""

import random
from collections.abc import Iterator, Mapping

import pytest
from attrs import define, field

from persys_core.model.replica import ShardMap, ShardMembers
from persys_core.sharding.hand_over import Seats
from persys_core.sharding.hashing import owner_of
from persys_core.sharding.map_changes import next_map

pytestmark = pytest.mark.slow

NODES = [f"n{number}" for number in range(12)]


def _seats(members: str, version: int, acknowledged: Mapping[str, int], past: str = "") -> Seats:
    earlier = tuple(ShardMembers(n, tuple(names)) for n, names in enumerate(past.split(), 1))
    return Seats(ShardMap(version, tuple(members), earlier), acknowledged)


def _of(members: str, owner: str) -> list[str]:
    return [node for node in NODES if owner_of(node, members) == owner]


def test_a_member_acts_once_it_acknowledged() -> None:
    """Before, it may still be at work for what it lost."""
    (node, *_) = _of("ab", "a")
    assert not _seats("ab", 1, {"b": 1}).may_act(node, "a")
    assert _seats("ab", 1, {"a": 1}).may_act(node, "a")


def test_a_new_owner_waits_for_the_old_one_alone() -> None:
    """``b`` has not acknowledged yet that ``c`` joined; what was ``a``'s may be taken up."""
    acknowledged = {"a": 2, "b": 1, "c": 2}
    seats = _seats("abc", 2, acknowledged, past="ab")
    gained = _of("abc", "c")
    from_a = [node for node in gained if owner_of(node, "ab") == "a"]
    from_b = [node for node in gained if owner_of(node, "ab") == "b"]
    assert from_a
    assert from_b
    assert all(seats.may_act(node, "c") for node in from_a)
    assert not any(seats.may_act(node, "c") for node in from_b)
    assert [list(seats.waits_for(node, "c")) for node in from_b] == [["b"]] * len(from_b)
    later = _seats("abc", 2, {**acknowledged, "b": 2}, past="ab")
    assert all(later.may_act(node, "c") for node in from_b)


def test_who_is_gone_is_not_waited_for() -> None:
    """Its record ends with its lease, and it acts no more by then."""
    seats = _seats("ac", 3, {"a": 3, "c": 3}, past="ab abc")
    assert all(seats.may_act(node, owner_of(node, "ac")) for node in NODES)


def test_a_past_that_is_not_known_is_waited_for() -> None:
    """A version from before everything that the map remembers may have been anybody's."""
    seats = _seats("abc", 9, {"a": 9, "b": 2, "c": 9}, past="")
    assert not any(seats.may_act(node, "c") for node in _of("abc", "c"))


def test_without_a_map_nobody_acts() -> None:
    """Not even a single replica: the coordinator writes the first map at once."""
    assert not Seats(None, {"a": 1}).may_act("n1", "a")
    assert Seats(None, {"a": 1}).acting("n1") == ()


@define
class _Member:
    """A replica whose view is late: it has seen the first ``seen`` states of the store."""

    name: str
    seen: int
    acting: set[str] = field(factory=set)


@define
class _World:
    """A store, as the list of all its states, and members that see them late."""

    rng: random.Random
    states: list[tuple[ShardMap | None, dict[str, int], frozenset[str]]] = field(
        factory=lambda: [(None, {}, frozenset())]
    )
    members: dict[str, _Member] = field(factory=dict)
    joined: int = 0

    def write(
        self,
        shard_map: ShardMap | None,
        acknowledged: dict[str, int],
        present: frozenset[str],
    ) -> None:
        self.states.append((shard_map, acknowledged, present))

    def join(self) -> None:
        self.joined += 1
        shard_map, acknowledged, present = self.states[-1]
        name = f"m{self.joined}"
        self.write(shard_map, acknowledged, present | {name})
        self.members[name] = _Member(name, len(self.states) - 1)

    def leave(self) -> None:
        """By a clean stop or the end of a lease: either way it acts no more before that."""
        name = self.rng.choice(sorted(self.members))
        del self.members[name]
        shard_map, acknowledged, present = self.states[-1]
        left = {who: version for who, version in acknowledged.items() if who != name}
        self.write(shard_map, left, present - {name})

    def coordinate(self) -> None:
        """With a view that may be late; the write then fails unless the map is the newest."""
        late = self.rng.randrange(max(0, len(self.states) - 4), len(self.states))
        known, acknowledged, present = self.states[late]
        newest = self.states[-1]
        following = next_map(known, present, acknowledged)
        if following is not None and known == newest[0]:
            self.write(following, newest[1], newest[2])

    def step(self, member: _Member) -> None:
        """See some more of the store; let go and acknowledge, or take up."""
        member.seen = self.rng.randint(member.seen, len(self.states) - 1)
        shard_map, acknowledged, present = self.states[member.seen]
        if shard_map is None:
            return
        seats = Seats(shard_map, {w: v for w, v in acknowledged.items() if w in present})
        if acknowledged.get(member.name) != shard_map.version:
            member.acting &= {node for node in NODES if seats.owner(node) == member.name}
            newest = self.states[-1]
            self.write(newest[0], {**newest[1], member.name: shard_map.version}, newest[2])
        member.acting |= {node for node in NODES if seats.may_act(node, member.name)}

    def doubly_owned(self) -> Iterator[str]:
        for node in NODES:
            if sum(node in member.acting for member in self.members.values()) > 1:
                yield node


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_events_gives_a_node_two_owners(seed: int) -> None:
    """Members join, leave, see things late and acknowledge in any order."""
    rng = random.Random(seed)
    world = _World(rng)
    world.join()
    for _ in range(300):
        match rng.randrange(10):
            case 0 if len(world.members) < 5:
                world.join()
            case 1 if len(world.members) > 1:
                world.leave()
            case 2 | 3:
                world.coordinate()
            case _:
                world.step(world.members[rng.choice(sorted(world.members))])
        assert not list(world.doubly_owned())
    _settle(world)
    assert all(sum(node in m.acting for m in world.members.values()) == 1 for node in NODES)


def _settle(world: _World) -> None:
    """Everybody sees everything, until nothing changes any more."""
    for _ in range(6):
        shard_map, acknowledged, present = world.states[-1]
        following = next_map(shard_map, present, acknowledged)
        if following is not None:
            world.write(following, acknowledged, present)
        for member in world.members.values():
            member.seen = len(world.states) - 1
            world.step(member)
