"""What is looked at in etcd: who answers, how large it is, and which alarms stand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

from attrs import evolve, frozen

from persys_adapters.etcd.client import Alarm, AlarmKind, EtcdClient, EtcdError, MemberStatus
from persys_server.doctor.findings import Finding, Verdict
from persys_server.settings import Settings
from persys_server.state import etcd_config

__all__ = ["examine_etcd"]

_PATIENCE = timedelta(seconds=3)
_USUAL_QUOTA = 2 << 30
"""What etcd allows itself where --quota-backend-bytes is not set; it does not tell the limit."""
_MUCH = 0.8


@frozen
class _Seen:
    """What each endpoint said, or why it did not; ``trouble``: the cluster as a whole."""

    members: Sequence[MemberStatus]
    silent: Sequence[tuple[str, str]]
    alarms: Sequence[Alarm]
    trouble: EtcdError | None


def examine_etcd(settings: Settings) -> Iterator[Finding]:
    """One line per endpoint, and one for the cluster. Nothing is written."""
    try:
        seen = asyncio.run(_look(settings))
    except ValueError as error:
        yield Finding("store", Verdict.FAIL, str(error), "correct the ETCD_ variables")
        return
    for endpoint, reason in seen.silent:
        yield Finding("store", Verdict.WARN, reason, f"is etcd up at {endpoint}?")
    yield from map(_member, seen.members)
    for alarm in seen.alarms:
        yield _alarm(alarm)
    if seen.trouble is not None:
        advice = "start etcd, or set ETCD_ENDPOINTS; PERSYS_STORE=sqlite:state.db needs no etcd"
        yield Finding("store", Verdict.FAIL, str(seen.trouble), advice)
    else:
        yield Finding("store", Verdict.OK, f"etcd serves {', '.join(settings.etcd_endpoints)}")


async def _look(settings: Settings) -> _Seen:
    config = evolve(etcd_config(settings), call_timeout=_PATIENCE)
    members: list[MemberStatus] = []
    silent: list[tuple[str, str]] = []
    async with EtcdClient(config) as client:
        for endpoint in client.endpoints:
            try:
                members.append(await client.status(endpoint))
            except EtcdError as error:
                silent.append((endpoint, error.details))
        alarms: Sequence[Alarm] = ()
        trouble: EtcdError | None = None
        try:
            await client.range(b"/persys/cluster", keys_only=True)
            alarms = await client.alarms()
        except EtcdError as error:
            trouble = error
    return _Seen(members, silent, alarms, trouble)


def _member(member: MemberStatus) -> Finding:
    told = (
        f"{member.endpoint}: etcd {member.version}, {_megabytes(member.db_size)} on disk,"
        f" {_megabytes(member.db_size_in_use)} of it in use"
    )
    if not member.leader:
        return Finding("store", Verdict.WARN, f"{told}; sees no leader", "are most members up?")
    if member.db_size > _MUCH * _USUAL_QUOTA:
        return Finding(
            "store", Verdict.WARN, told,
            "near etcd's usual quota of 2 GiB: defragment it, or raise --quota-backend-bytes",
        )  # fmt: skip
    return Finding("store", Verdict.OK, told)


def _alarm(alarm: Alarm) -> Finding:
    told = f"alarm {alarm.kind.name} stands at member {alarm.member_id:x}"
    if alarm.kind is AlarmKind.NOSPACE:
        advice = "compact and defragment etcd or raise its quota, then: etcdctl alarm disarm"
    else:
        advice = "the member's data differs from the others': replace the member"
    return Finding("store", Verdict.FAIL, told, advice)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
