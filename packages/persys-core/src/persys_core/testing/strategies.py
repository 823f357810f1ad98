"""Hypothesis strategies for every record: any legal value, each optional field filled or not.

They follow the types of the records, so a field that is added later is covered at once. The only
module that needs Hypothesis (the extra ``testing``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from string import ascii_letters, digits
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from attrs import fields, has
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persys_core.model.cluster import ClusterMarker, LeaderRecord, LedgerState
from persys_core.model.drift import DriftRecord
from persys_core.model.node import Node
from persys_core.model.replica import (
    Evictions,
    ReplicaRecord,
    ShardAcknowledgement,
    ShardMap,
)
from persys_core.model.resources import CPU, DISK, MEMORY, Resources, pool_dimension
from persys_core.model.spec import ComposeSpec, ContainerSpec, SpecBody, VmSpec, WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_core.model.volume import Attachment, Volume
from persys_core.model.workload import Allocation, Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Key, Record

__all__ = [
    "Entry",
    "allocations",
    "assignments",
    "attachments",
    "entries",
    "ids",
    "leaders",
    "ledgers",
    "markers",
    "nodes",
    "resources",
    "statuses",
    "tombstones",
    "volumes",
    "with_entries",
    "workloads",
]

Entry: TypeAlias = tuple[Key, Record]
_Strategy: TypeAlias = st.SearchStrategy[Any]

_LETTERS = ascii_letters + digits
_FIRST_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
_CENTURY = timedelta(days=36_500)
_BODIES: Mapping[WorkloadType, type[SpecBody]] = {
    WorkloadType.CONTAINER: ContainerSpec,
    WorkloadType.COMPOSE: ComposeSpec,
    WorkloadType.VM: VmSpec,
    WorkloadType.MICROVM: VmSpec,
}


def ids() -> st.SearchStrategy[str]:
    """Ids that a new node or workload may have."""
    tail = st.text(_LETTERS + "._-", max_size=8)
    return st.tuples(st.sampled_from(_LETTERS), tail).map("".join)


def resources() -> st.SearchStrategy[Resources]:
    """Vectors over the usual dimensions, named pools and dimensions of the future."""
    dimension = st.sampled_from([CPU, MEMORY, DISK, pool_dimension("fast"), "gpu:a100"])
    amounts = st.dictionaries(dimension, st.integers(0, 10**10), max_size=5)
    return amounts.map(Resources)


def nodes() -> st.SearchStrategy[Node]:
    """Nodes with any operator intent, pools and labels."""
    return _built(Node, id=ids())


def workloads() -> st.SearchStrategy[Workload]:
    """Workloads of every type, with the body that belongs to the type."""
    return _built(Workload, id=ids(), spec=_specs())


def statuses() -> st.SearchStrategy[StatusRecord]:
    """Status records with any combination of their parts."""
    return _built(StatusRecord, id=ids())


def assignments() -> st.SearchStrategy[Assignment]:
    """Assignments with any charge."""
    return _built(Assignment, workload_id=ids(), node_id=ids())


def allocations() -> st.SearchStrategy[Allocation]:
    """Allocation records."""
    return _built(Allocation, node_id=ids())


def tombstones() -> st.SearchStrategy[Tombstone]:
    """Tombstones with and without an open intent."""
    return _built(Tombstone, node_id=ids(), workload_id=ids())


def volumes() -> st.SearchStrategy[Volume]:
    """Managed volumes and standalone disks, claimed or not."""
    named = st.lists(ids(), max_size=3, unique=True).map(sorted).map(tuple)
    return _built(
        Volume,
        id=_volume_ids(),
        name=ids(),
        driver=ids(),
        workload_refs=named,
        attached_nodes=named,
    )


def attachments() -> st.SearchStrategy[Attachment]:
    """Attachments in any phase."""
    return _built(Attachment, volume_id=_volume_ids(), workload_id=ids(), node_id=ids())


def _volume_ids() -> st.SearchStrategy[str]:
    return st.tuples(ids(), ids()).map(":".join)


def drifts() -> st.SearchStrategy[DriftRecord]:
    """Drift records of any type."""
    return _built(DriftRecord, node_id=ids(), workload_id=ids())


def markers() -> st.SearchStrategy[ClusterMarker]:
    """Cluster markers."""
    return _built(ClusterMarker)


def ledgers() -> st.SearchStrategy[LedgerState]:
    """States of the ledger."""
    return _built(LedgerState)


def leaders() -> st.SearchStrategy[LeaderRecord]:
    """Leader records."""
    return _built(LeaderRecord, election=ids(), instance_id=ids())


def replicas() -> st.SearchStrategy[ReplicaRecord]:
    """Replicas in any mode."""
    return _built(ReplicaRecord, instance_id=ids())


def shard_maps() -> st.SearchStrategy[ShardMap]:
    """Maps with and without a past."""
    return _built(ShardMap)


def shard_acks() -> st.SearchStrategy[ShardAcknowledgement]:
    """Acknowledgements of any version."""
    return _built(ShardAcknowledgement, instance_id=ids())


def evictions() -> st.SearchStrategy[Evictions]:
    """Which lost nodes may be left."""
    return _built(Evictions)


def entries() -> st.SearchStrategy[Entry]:
    """A record of any kind together with the key that it belongs to."""
    return st.one_of(
        nodes().map(lambda node: (Key.node(node.id), node)),
        workloads().map(lambda workload: (Key.workload(workload.id), workload)),
        statuses().map(lambda status: (Key.status(status.id), status)),
        assignments().map(lambda each: (Key.assignment(each.workload_id), each)),
        allocations().map(lambda each: (Key.allocation(each.node_id), each)),
        tombstones().map(lambda each: (Key.tombstone(each.node_id, each.workload_id), each)),
        volumes().map(lambda each: (Key.volume(each.id), each)),
        attachments().map(
            lambda each: (Key.attachment(each.node_id, each.workload_id, each.volume_id), each)
        ),
        drifts().map(
            lambda each: (Key.drift(each.node_id, each.workload_id, each.drift_type), each)
        ),
        markers().map(lambda marker: (Key.marker(), marker)),
        ledgers().map(lambda ledger: (Key.ledger(), ledger)),
        leaders().map(lambda leader: (Key.leader(leader.election), leader)),
        replicas().map(lambda each: (Key.replica(each.instance_id), each)),
        shard_maps().map(lambda each: (Key.shard_map(), each)),
        shard_acks().map(lambda each: (Key.shard_ack(each.instance_id), each)),
        evictions().map(lambda each: (Key.evictions(), each)),
    )


def with_entries(examples: int = 30) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a test with ``written``: some entries, no key twice. For tests of whole stores."""
    written = st.lists(entries(), max_size=12, unique_by=lambda entry: entry[0])
    # A suite's test is run by every subclass, and stores that are opened anew take their time.
    checks = [
        HealthCheck.differing_executors,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ]
    relaxed = settings(max_examples=examples, deadline=None, suppress_health_check=checks)

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        return relaxed(given(written=written)(test))

    return decorate


def _specs() -> st.SearchStrategy[WorkloadSpec]:
    return st.one_of(
        [
            _built(WorkloadSpec, type=st.just(kind), body=_built(body))
            for kind, body in _BODIES.items()
        ]
    )


def _built(kind: type, **given_fields: _Strategy) -> _Strategy:
    """Instances of an attrs class: the given strategies, and for other fields those of the type."""
    hints = get_type_hints(kind)
    others = {
        field.name: _of(hints[field.name])
        for field in fields(kind)
        if field.name not in given_fields
    }
    return st.builds(kind, **given_fields, **others)


def _of(hint: Any) -> _Strategy:
    """Values of a type that may stand in a record."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([st.none() if each is NoneType else _of(each) for each in arguments])
    if origin is tuple:
        return st.lists(_of(arguments[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(_of(arguments[0]), max_size=3)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(_of(arguments[0]), _of(arguments[1]), max_size=3)
    return _of_class(hint)


def _of_class(kind: Any) -> _Strategy:
    if kind is Resources:
        return resources()
    if has(kind):
        return _built(kind)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    plain: Mapping[type, _Strategy] = {
        bool: st.booleans(),
        int: st.integers(0, 2**53),
        str: st.text(max_size=8),
        datetime: st.timedeltas(timedelta(), _CENTURY).map(lambda since: _FIRST_INSTANT + since),
    }
    return plain[kind]
