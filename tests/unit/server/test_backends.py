"""Which adapters stand behind the ports for given settings, and that they are closed again."""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from persys_adapters.redis.address import Address, RedisTarget, RedisTls
from persys_adapters.redis.event_log import RedisEventLog
from persys_core.model.event import Event, EventFilter, EventType
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage
from persys_core.ports.cluster_store import Guarantee, StoreUnavailableError
from persys_core.ports.observer import NullObserver
from persys_server.backends import instance_name, open_ports
from persys_server.copies import RedisFileError, redis_target
from persys_server.settings import Settings, load_settings
from persys_server.state import EtcdSettingsError


def settings(store: str, folder: Path) -> Settings:
    return load_settings({"PERSYS_STORE": store, "PERSYS_DATA_DIR": str(folder / "new")})


@pytest.mark.asyncio
async def test_memory_needs_nothing(tmp_path: Path) -> None:
    """Nothing is written anywhere."""
    async with AsyncExitStack() as stack:
        ports = await open_ports(settings("memory", tmp_path), NullObserver(), stack)
        assert Guarantee.DURABLE not in ports.store.guarantees
    assert os.listdir(tmp_path) == []


@pytest.mark.asyncio
async def test_sqlite_lies_in_the_data_dir_and_is_held(tmp_path: Path) -> None:
    """The folder is made; a second replica on the file is told who holds it; closing frees it."""
    wanted = settings("sqlite:state.db", tmp_path)
    for _ in range(2):
        async with AsyncExitStack() as stack:
            ports = await open_ports(wanted, NullObserver(), stack)
            assert Guarantee.DURABLE in ports.store.guarantees
            assert (tmp_path / "new" / "state.db").exists()
            with pytest.raises(StoreUnavailableError, match=str(os.getpid())):
                await open_ports(wanted, NullObserver(), stack)


@pytest.mark.asyncio
async def test_etcd_is_opened_without_waiting_for_it(tmp_path: Path) -> None:
    """A server that is away is met, and waited for, by the scheduler's start."""
    async with AsyncExitStack() as stack:
        ports = await open_ports(settings("etcd", tmp_path), NullObserver(), stack)
        assert Guarantee.SHARED in ports.store.guarantees


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_replica_opens_and_closes_without_waiting_for_redis(tmp_path: Path) -> None:
    """Nobody listens where Redis is said to be: events are taken all the same, none are listed."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        wanted = load_settings({"PERSYS_STORE": "memory", "REDIS_ADDR": place})
        async with AsyncExitStack() as stack:
            ports = await open_ports(wanted, NullObserver(), stack)
            assert isinstance(ports.events, RedisEventLog)
            ports.events.append(Event(EventType.NODE_LOST, datetime.now(UTC)))
            assert await ports.events.list(EventFilter()) == []
            usage = NodeUsage("n1", Resources.of(cpu_millicores=5), datetime.now(UTC))
            ports.telemetry.record_node_usage(usage)
            assert ports.telemetry.node_usage("n1") == usage


@pytest.mark.asyncio
async def test_a_missing_certificate_for_redis_stops_the_start(tmp_path: Path) -> None:
    """It would never get better by itself; the variable and the file are named."""
    wanted = load_settings(
        {
            "PERSYS_STORE": "memory",
            "REDIS_ADDR": "r",
            "REDIS_TLS_ENABLED": "true",
            "REDIS_TLS_CA": str(tmp_path / "none.pem"),
        }
    )
    async with AsyncExitStack() as stack:
        with pytest.raises(RedisFileError, match=r"REDIS_TLS_CA=.*none\.pem"):
            await open_ports(wanted, NullObserver(), stack)


def test_redis_is_found_by_the_settings() -> None:
    """Sentinels, users and TLS reach the adapter; without an address there is no Redis."""
    assert redis_target(load_settings({})) is None
    target = redis_target(
        load_settings(
            {
                "REDIS_SENTINELS": "s1, s2:7",
                "REDIS_MASTER_NAME": "m",
                "REDIS_PASSWORD": "p",
                "REDIS_DB": "3",
                "REDIS_SENTINEL_PASSWORD": "sp",
                "REDIS_TLS_ENABLED": "true",
                "REDIS_TLS_CA": "/ca",
            }
        )
    )
    assert target == RedisTarget(
        sentinels=(Address("s1", 26379), Address("s2", 7)),
        master_name="m",
        password="p",
        sentinel_password="sp",
        db=3,
        tls=RedisTls("/ca"),
    )


def test_instances_have_names_of_their_own() -> None:
    """Two processes of one machine are two replicas."""
    assert instance_name() != instance_name()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "wrong",
    [
        {"ETCD_ENDPOINTS": "127.0.0.1"},
        {"ETCD_TLS_CA": "/nowhere/ca.pem"},
    ],
)
async def test_settings_of_etcd_that_cannot_be_used_are_told(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    """An error for people, no traceback."""
    given = {"PERSYS_STORE": "etcd", "PERSYS_DATA_DIR": str(tmp_path / "new"), **wrong}
    async with AsyncExitStack() as stack:
        with pytest.raises(EtcdSettingsError, match=next(iter(wrong.values())).replace(".", r"\.")):
            await open_ports(load_settings(given), NullObserver(), stack)
