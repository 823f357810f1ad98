"""The image that a seed is written to."""

from __future__ import annotations

import hashlib
import os
from io import BytesIO
from pathlib import Path

import pytest
from pycdlib import PyCdlib

from persys_agent.runtimes.cloud_init.image import write_seed
from persys_agent.runtimes.cloud_init.seed import Seed

SEED = Seed("user", "meta", "network", "vendor")


def read(path: Path, **where: str) -> bytes:
    iso, content = PyCdlib(), BytesIO()
    iso.open(str(path))
    try:
        iso.get_file_from_iso_fp(content, **where)
        return content.getvalue()
    finally:
        iso.close()


@pytest.mark.asyncio
async def test_an_image_holds_the_files(tmp_path: Path) -> None:
    """Every file is found under its own name by readers of Joliet and of Rock Ridge."""
    image = await write_seed(SEED, tmp_path / "seed.iso")
    for name, content in SEED.files().items():
        assert read(image.path, joliet_path=f"/{name}") == content
        assert read(image.path, rr_path=f"/{name}") == content


@pytest.mark.asyncio
async def test_the_label_is_the_one_that_is_looked_for(tmp_path: Path) -> None:
    """The volume is called ``cidata``."""
    image = await write_seed(SEED, tmp_path / "seed.iso")
    content = image.path.read_bytes()
    assert content[0x8000 + 40 : 0x8000 + 72].rstrip() == b"cidata"


@pytest.mark.asyncio
async def test_an_image_is_nobody_elses(tmp_path: Path) -> None:
    """Mode 0600, also over an older file that was open to all; nothing else is left."""
    path = tmp_path / "seed.iso"
    path.write_text("older")
    path.chmod(0o644)
    await write_seed(SEED, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["seed.iso"]


@pytest.mark.asyncio
async def test_the_report_is_true(tmp_path: Path) -> None:
    """Checksum and size in the metadata are those of the file."""
    image = await write_seed(Seed("user", "meta", "network"), tmp_path / "seed.iso")
    content = image.path.read_bytes()
    reported = image.metadata()
    assert reported["vm.cloud_init_seed_checksum"] == hashlib.sha256(content).hexdigest()
    assert reported["vm.cloud_init_seed_size_bytes"] == str(len(content))
    assert reported["vm.cloud_init_seed_path"] == str(image.path)
    assert reported["vm.cloud_init_seed_prepared_at"].endswith("+00:00")


@pytest.mark.asyncio
async def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """A folder in the way is an error, and no half image stays."""
    (tmp_path / "seed.iso").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        await write_seed(SEED, tmp_path / "seed.iso")
    assert os.listdir(tmp_path) == ["seed.iso"]
