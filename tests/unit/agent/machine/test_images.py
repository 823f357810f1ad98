"""Which files specs may name, and how disks are made and deleted."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from persys_agent.runtimes.machine.images import (
    Marker,
    allowed_path,
    clone_image,
    delete_disk,
    find_image,
    make_disk,
    marker_of,
    storage_failure,
)
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="there is no qemu-img")


@pytest.mark.parametrize(
    "text", ["relative", "/etc/shadow", "/", "{root}", "{root}/../x", "{root}/out"]
)
def test_paths_outside_are_refused(tmp_path: Path, text: str) -> None:
    """Neither another folder, nor the folder itself, nor a link that leads out of it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("/etc/shadow")
    with pytest.raises(RuntimeFailedError) as raised:
        allowed_path(text.format(root=root), [root])
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_paths_inside_are_resolved(tmp_path: Path) -> None:
    """A file below any of the roots may be named, also before it is there."""
    assert allowed_path(f"{tmp_path}/a/b.img", [Path("/nowhere"), tmp_path]) == tmp_path / "a/b.img"


def test_images_are_found_by_name(tmp_path: Path) -> None:
    """By their name with or without its ending, or by their path."""
    image = tmp_path / "debian-12.qcow2"
    image.touch()
    for name in ("debian-12", "debian-12.qcow2", str(image)):
        assert find_image(name, tmp_path) == image


@pytest.mark.parametrize("name", ["nothing", "https://u:secret@example.org/x.qcow2"])
def test_a_missing_image_has_a_code_of_its_own(tmp_path: Path, name: str) -> None:
    """What is not there, and what would have to be downloaded, is a missing image."""
    with pytest.raises(RuntimeFailedError) as raised:
        find_image(name, tmp_path)
    assert raised.value.code is FailureCode.IMAGE_NOT_FOUND
    assert "secret" not in str(raised.value)


def test_an_image_elsewhere_is_no_image(tmp_path: Path) -> None:
    """A name that leads out of the folder is refused."""
    with pytest.raises(RuntimeFailedError) as raised:
        find_image("../../etc/shadow", tmp_path)
    assert raised.value.code is FailureCode.INVALID_SPEC


@needs_qemu_img
@pytest.mark.asyncio
async def test_a_made_disk_is_marked(tmp_path: Path) -> None:
    """An overlay says whose it is and what it is made of, and only its owner deletes it."""
    base, disk = tmp_path / "base.img", tmp_path / "disk.qcow2"
    base.write_bytes(bytes(1024 * 1024))
    await make_disk(disk, "w-1", form="qcow2", size_gb=1, backing=base)
    assert marker_of(disk) == Marker("w-1", str(base))
    assert not delete_disk(disk, "w-2")
    assert disk.exists()
    assert delete_disk(disk, "w-1")
    assert os.listdir(tmp_path) == ["base.img"]


@needs_qemu_img
@pytest.mark.asyncio
async def test_a_disk_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    """The tool's own words are the error, and neither disk nor marker stays."""
    base, disk = tmp_path / "base.qcow2", tmp_path / "disk.qcow2"
    base.write_bytes(b"QFI\xfb and then nonsense")
    with pytest.raises(RuntimeFailedError):
        await make_disk(disk, "w-1", form="qcow2", size_gb=0, backing=base)
    assert os.listdir(tmp_path) == ["base.qcow2"]


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"other": 1}'])
def test_a_strange_marker_is_nobodys(tmp_path: Path, text: str) -> None:
    """A disk with a marker that we cannot read (the reference agent's, say) is not deleted."""
    disk = tmp_path / "disk.qcow2"
    disk.touch()
    (tmp_path / "disk.qcow2.persys-managed").write_text(text)
    assert not delete_disk(disk, "w-1")
    assert disk.exists()


def test_a_disk_without_a_marker_is_not_ours(tmp_path: Path) -> None:
    """It was there before, so it stays."""
    disk = tmp_path / "disk.qcow2"
    disk.touch()
    assert marker_of(disk) is None
    assert not delete_disk(disk, "w-1")
    assert disk.exists()


@pytest.mark.asyncio
async def test_a_raw_clone_keeps_holes(tmp_path: Path) -> None:
    """A copy has the same content, takes no more room than the image, and is grown."""
    image, copy = tmp_path / "image.raw", tmp_path / "copy.raw"
    with image.open("wb") as file:
        file.write(b"begin")
        file.truncate(64 * 1024 * 1024)
    with image.open("r+b") as file:
        file.seek(32 * 1024 * 1024)
        file.write(b"middle")
    await clone_image(image, copy, size_gb=1)
    with copy.open("rb") as file:
        assert file.read(5) == b"begin"
        file.seek(32 * 1024 * 1024)
        assert file.read(6) == b"middle"
    assert copy.stat().st_size == 1024**3
    assert copy.stat().st_blocks <= image.stat().st_blocks + 16


@pytest.mark.asyncio
async def test_a_clone_of_nothing_is_empty(tmp_path: Path) -> None:
    """A disk of a size and no image is one hole."""
    await clone_image(None, tmp_path / "disk.raw", size_gb=1)
    assert (tmp_path / "disk.raw").stat().st_size == 1024**3


@needs_qemu_img
@pytest.mark.asyncio
async def test_other_formats_are_converted(tmp_path: Path) -> None:
    """A qcow2 image becomes a raw disk of its virtual size."""
    await make_disk(tmp_path / "image.qcow2", "w", form="qcow2", size_gb=1)
    await clone_image(tmp_path / "image.qcow2", tmp_path / "disk.raw")
    assert (tmp_path / "disk.raw").stat().st_size == 1024**3


def test_a_full_disk_is_told_apart() -> None:
    """By its error number."""
    full = storage_failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "cannot write")
    assert full.code is FailureCode.STORAGE_FULL
    assert storage_failure(OSError(errno.EIO, "x"), "w").code is FailureCode.RUNTIME_ERROR
