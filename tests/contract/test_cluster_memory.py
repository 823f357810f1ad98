"""The memory of the cluster: in the process, and in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from persys_adapters.known_file import KnownFile, KnownFileError
from persys_core.memory.cluster_memory import MemoryClusterMemory
from persys_core.modes.evidence import Known
from persys_core.ports.cluster_memory import ClusterMemory
from persys_core.testing.cluster_memory import ClusterMemoryContract


class TestMemoryClusterMemory(ClusterMemoryContract):
    """In the process."""

    @pytest.fixture
    def open_memory(self) -> Callable[[], ClusterMemory]:
        memory = MemoryClusterMemory()
        return lambda: memory


class TestKnownFile(ClusterMemoryContract):
    """In a file."""

    @pytest.fixture
    def open_memory(self, tmp_path: Path) -> Callable[[], ClusterMemory]:
        return lambda: KnownFile(tmp_path / "known.json")

    async def test_only_the_owner_reads_it(self, tmp_path: Path) -> None:
        """The file has no group and world permissions."""
        await KnownFile(tmp_path / "known.json").save(Known("c"))
        assert (tmp_path / "known.json").stat().st_mode & 0o077 == 0

    async def test_a_file_of_an_older_release_is_read(self, tmp_path: Path) -> None:
        """Without nodes and without the marker's life, which then every store is not older than."""
        path = tmp_path / "known.json"
        path.write_text('{"cluster_id": "c", "backend_id": "", "revision": 7}')
        assert await KnownFile(path).load() == Known("c", revision=7)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"cluster_id": "c"}'])
    async def test_a_damaged_file_is_said_not_ignored(self, tmp_path: Path, text: str) -> None:
        """A file that cannot be understood is an error that names it, never *nothing known*."""
        path = tmp_path / "known.json"
        path.write_text(text)
        with pytest.raises(KnownFileError, match=r"known\.json"):
            await KnownFile(path).load()
