"""What `persys-server doctor` says of an etcd and of a Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from persys_server.doctor.checks import examine
from persys_server.doctor.findings import Finding, Verdict
from tests.e2e.processes import free_port
from tests.servers.etcd import EtcdCluster
from tests.servers.redis import RedisServer, redis_server


@pytest.fixture
def healthy(tmp_path: Path) -> dict[str, str]:
    return {
        "PERSYS_DATA_DIR": str(tmp_path / "data"),
        "PERSYS_GRPC_ADDR": "127.0.0.1",
        "GRPC_PORT": str(free_port()),
        "METRICS_PORT": str(free_port()),
    }


def by_verdict(environment: dict[str, str], verdict: Verdict) -> list[Finding]:
    return [finding for finding in examine(environment) if finding.verdict is verdict]


def test_an_etcd_that_is_not_there_is_told(healthy: dict[str, str]) -> None:
    """Each endpoint that is silent, and that the store as a whole cannot be used, with advice."""
    place = f"127.0.0.1:{free_port()}"
    changed = healthy | {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": place}
    (found,) = by_verdict(changed, Verdict.FAIL)
    assert "ETCD_ENDPOINTS" in found.advice
    assert "sqlite:" in found.advice
    (silent,) = by_verdict(changed, Verdict.WARN)
    assert place in silent.advice


def test_an_etcd_is_told_with_its_size_and_alarms(
    healthy: dict[str, str], etcd_alone: EtcdCluster
) -> None:
    """What an operator has to watch: size on disk and in use, and what stands in the way."""
    changed = healthy | {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": etcd_alone.endpoints[0]}
    told = " ".join(finding.found for finding in by_verdict(changed, Verdict.OK))
    assert "etcd 3." in told
    assert "MB on disk" in told
    assert not by_verdict(changed, Verdict.FAIL)


def test_an_etcd_that_takes_no_such_user_is_told(
    healthy: dict[str, str], etcd_secured: EtcdCluster
) -> None:
    """With the reason, and without the password."""
    assert etcd_secured.tls is not None
    changed = healthy | {
        "PERSYS_STORE": "etcd",
        "ETCD_ENDPOINTS": etcd_secured.endpoints[0],
        "ETCD_TLS_CA": str(etcd_secured.tls.authority),
        "ETCD_TLS_CERT": str(etcd_secured.tls.client_certificate),
        "ETCD_TLS_KEY": str(etcd_secured.tls.client_key),
        "ETCD_USERNAME": "root",
        "ETCD_PASSWORD": "not-the-password",
    }
    failed = by_verdict(changed, Verdict.FAIL)
    assert "invalid user" in failed[-1].found
    assert "not-the-password" not in repr(failed)
    right = changed | {"ETCD_PASSWORD": "root-secret"}
    assert not by_verdict(right, Verdict.FAIL)


@pytest.mark.asyncio
async def test_a_redis_is_told_and_its_absence_is_only_a_warning(
    healthy: dict[str, str], tmp_path: Path
) -> None:
    """A server runs without it; a wrong password is told without the password."""
    wanted = healthy | {"PERSYS_STORE": "memory"}
    saves = ("--dbfilename", "d.rdb")
    async with redis_server(tmp_path / "redis", *saves, password="right-one") as redis:
        place = {"REDIS_ADDR": f"127.0.0.1:{redis.port}", "REDIS_PASSWORD": "right-one"}
        found = await asyncio.to_thread(by_verdict, wanted | place, Verdict.OK)
        assert "redis" in {finding.check for finding in found}
        wrong = wanted | place | {"REDIS_PASSWORD": "wrong-one"}
        found = await asyncio.to_thread(by_verdict, wrong, Verdict.WARN)
        [told] = [finding for finding in found if finding.check == "redis"]
        assert "REDIS_PASSWORD" in told.advice
        assert "wrong-one" not in repr(told)
        found = await asyncio.to_thread(
            by_verdict, wanted | place | {"REDIS_DB": "99"}, Verdict.WARN
        )
        [told] = [finding for finding in found if finding.check == "redis"]
        assert "set REDIS_DB to one that this Redis has" in told.advice
        await _cannot_save(redis)
        found = await asyncio.to_thread(by_verdict, wanted | place, Verdict.WARN)
        [told] = [finding for finding in found if finding.check == "redis"]
        assert "cannot save to its disk" in told.advice
    tls = wanted | place | {"REDIS_TLS_ENABLED": "true", "REDIS_TLS_CA": str(tmp_path / "no")}
    [told] = await asyncio.to_thread(by_verdict, tls, Verdict.FAIL)
    assert str(tmp_path / "no") in told.found
    gone = wanted | {"REDIS_ADDR": f"127.0.0.1:{free_port()}"}
    found = await asyncio.to_thread(by_verdict, gone, Verdict.WARN)
    assert "redis" in {finding.check for finding in found}
    assert not await asyncio.to_thread(by_verdict, gone, Verdict.FAIL)


async def _cannot_save(redis: RedisServer) -> None:
    """Put a folder where its snapshot has to go, and wait until it has noticed."""
    (redis.folder / "d.rdb").mkdir()
    async with redis.client() as client, asyncio.timeout(10):
        await client.config_set("save", "3600 1")
        await client.set("some", "data")
        await client.bgsave()
        while (await client.info("persistence"))["rdb_last_bgsave_status"] != "err":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
