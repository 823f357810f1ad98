"""What every storage driver promises, as tests: a subclass gives the ``driver`` fixture."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.storage.port import StorageDriver, StorageFailedError
from persys_core.model.spec import ManagedVolume

__all__ = ["StorageDriverSuite"]

_ODD_NAMES = ("", "  ", "..", ".", "../etc", "---", ".hidden", "x" * 300)
_ODD_IDS = ("..", "../x", "a/b", "", "-x", "x" * 300)


class StorageDriverSuite:
    """The duties of ``StorageDriver``. ``HOLDS_DATA``: what is written to a path is really there
    after another attach."""

    HOLDS_DATA = True

    @pytest.fixture
    def driver(self) -> StorageDriver:
        """The driver under test, with nothing attached."""
        raise AssertionError("a subclass gives the driver that is tested")

    @pytest.fixture
    def volume(self, driver: StorageDriver) -> ManagedVolume:
        """A volume of this driver."""
        return ManagedVolume("Data Base", driver=driver.name, size_gb=1, mount_path="/data")

    @pytest.mark.asyncio
    async def test_attach_is_idempotent(self, driver: StorageDriver, volume: ManagedVolume) -> None:
        """The same workload gets the same again, and nothing is left after one detach."""
        first = await driver.attach(volume, "w1")
        assert await driver.attach(volume, "w1") == first
        assert (first.volume, first.device) == (volume, "")
        assert Path(first.path).is_absolute()
        await driver.detach(volume, "w1")
        await driver.delete_data(volume)

    @pytest.mark.asyncio
    async def test_detach_is_idempotent(self, driver: StorageDriver, volume: ManagedVolume) -> None:
        """What was never attached, or is detached already, is detached."""
        await driver.detach(volume, "w1")
        await driver.attach(volume, "w1")
        await driver.detach(volume, "w1")
        await driver.detach(volume, "w1")
        await driver.delete_data(volume)

    @pytest.mark.asyncio
    async def test_an_exclusive_volume_has_one_workload(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """The second is refused and told who has it, until the first is gone; without an access
        mode it is exclusive (defect 38)."""
        await driver.attach(volume, "w1")
        with pytest.raises(StorageFailedError, match="workload w1 has it"):
            await driver.attach(volume, "w2")
        once = evolve(volume, access_mode="ReadWriteOnce")
        with pytest.raises(StorageFailedError, match="workload w1 has it"):
            await driver.attach(once, "w2")
        await driver.detach(volume, "w1")
        await driver.attach(volume, "w2")
        await driver.detach(volume, "w2")
        await driver.delete_data(volume)

    @pytest.mark.asyncio
    async def test_two_at_once_do_not_both_get_it(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """Of two that ask at the same time one is refused."""
        answers = await asyncio.gather(
            driver.attach(volume, "w1"), driver.attach(volume, "w2"), return_exceptions=True
        )
        refused = [each for each in answers if isinstance(each, StorageFailedError)]
        assert len(refused) == 1
        for workload_id in ("w1", "w2"):
            await driver.detach(volume, workload_id)
        await driver.delete_data(volume)

    @pytest.mark.asyncio
    async def test_a_shared_volume_has_many(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """With ReadWriteMany, one workload's detach leaves the other's use alone."""
        shared = evolve(volume, access_mode="ReadWriteMany")
        await driver.attach(shared, "w1")
        second = await driver.attach(shared, "w2")
        await driver.detach(shared, "w1")
        assert await driver.attach(shared, "w2") == second
        with pytest.raises(StorageFailedError, match="w2 has it"):
            await driver.delete_data(shared)
        await driver.detach(shared, "w2")
        await driver.delete_data(shared)

    @pytest.mark.asyncio
    async def test_two_names_that_become_one_are_refused(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """Neither is the other's data shared, nor removed under another name."""
        await driver.attach(volume, "w1")
        other = evolve(volume, name="data-base")
        with pytest.raises(StorageFailedError, match="name one of them otherwise"):
            await driver.attach(other, "w2")
        await driver.detach(volume, "w1")
        with pytest.raises(StorageFailedError, match="nothing is removed"):
            await driver.delete_data(other)
        await driver.delete_data(volume)

    @pytest.mark.asyncio
    async def test_names_and_ids_never_become_other_places(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """What is no name or no id is refused by every call."""
        for name in _ODD_NAMES:
            odd = evolve(volume, name=name)
            with pytest.raises(StorageFailedError):
                await driver.attach(odd, "w1")
            with pytest.raises(StorageFailedError):
                await driver.delete_data(odd)
        for workload_id in _ODD_IDS:
            with pytest.raises(StorageFailedError):
                await driver.attach(volume, workload_id)
            with pytest.raises(StorageFailedError):
                await driver.detach(volume, workload_id)

    @pytest.mark.asyncio
    async def test_data_stays_until_it_is_deleted(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """Detach keeps it, delete_data removes it, also twice, and never while it is attached."""
        path = Path((await driver.attach(volume, "w1")).path)
        if self.HOLDS_DATA:
            _write(path / "kept")
        with pytest.raises(StorageFailedError, match="w1 has it"):
            await driver.delete_data(volume)
        await driver.detach(volume, "w1")
        again = Path((await driver.attach(volume, "w2")).path)
        assert _is_there(again / "kept") is self.HOLDS_DATA
        await driver.detach(volume, "w2")
        await driver.delete_data(volume)
        await driver.delete_data(volume)
        new = Path((await driver.attach(volume, "w3")).path)
        assert not _is_there(new / "kept")
        await driver.detach(volume, "w3")
        await driver.delete_data(volume)

    @pytest.mark.asyncio
    async def test_machines_get_a_device(
        self, driver: StorageDriver, volume: ManagedVolume
    ) -> None:
        """A device and no folder (defect 36); not together with a use as a folder."""
        shared = evolve(volume, access_mode="ReadWriteMany")
        attached = await driver.attach(shared, "vm1", as_device=True)
        assert attached.path == ""
        assert attached.device.startswith("/")
        with pytest.raises(StorageFailedError, match="as a disk of a machine"):
            await driver.attach(shared, "w2")
        await driver.detach(shared, "vm1")
        await driver.delete_data(shared)

    @pytest.mark.asyncio
    async def test_probe_and_pools_answer(self, driver: StorageDriver) -> None:
        """The driver under test can be used, and says with what."""
        found = await driver.probe()
        assert found.is_available, found.detail
        assert found.detail
        assert all(pool.total_gb > 0 for pool in await driver.pools())


def _write(path: Path) -> None:
    path.write_text("data")


def _is_there(path: Path) -> bool:
    return path.exists()
