"""Which adapters stand behind the ports for given settings, and that they are closed again."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from persys_core.ports.cluster_store import Guarantee, StoreUnavailableError
from persys_core.ports.observer import NullObserver
from persys_server.backends import instance_name, open_ports
from persys_server.settings import Settings, load_settings


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


def test_instances_have_names_of_their_own() -> None:
    """Two processes of one machine are two replicas."""
    assert instance_name() != instance_name()
