"""Images of disks on this host: which files a spec may name, and how disks are made of them.

Decided here: a path of a spec is followed only below the folders that the operator gave (also after
its links are resolved), so no spec can read or overwrite a file of the host as a disk. A disk that
we made has a marker beside it (``<path>.persys-managed``) that names its workload and what it was
made of; only such a disk is ever deleted, and never one that names another workload.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.ids import WorkloadId

__all__ = [
    "Marker",
    "allowed_path",
    "clone_image",
    "delete_disk",
    "find_image",
    "make_disk",
    "marker_of",
    "storage_failure",
]

_SUFFIXES = ("", ".qcow2", ".img", ".raw")
_MARKER_SUFFIX = ".persys-managed"
_TOOL = "qemu-img"
_QCOW2 = b"QFI\xfb"
_GIB = 1024**3
_COPY_BYTES = 4 * 1024 * 1024


@frozen
class Marker:
    """Whose a disk is, and the image that it was made of (empty: of none)."""

    workload_id: WorkloadId
    backing: str = ""


def allowed_path(text: str, roots: Sequence[Path]) -> Path:
    """The file that ``text`` names, links resolved. Raises ``RuntimeFailedError`` outside of the
    ``roots``."""
    path = Path(text)
    if "\0" in text or not path.is_absolute():
        raise _refused(f"{text!r} is no absolute path")
    resolved = path.resolve()
    if not any(resolved != root and resolved.is_relative_to(root.resolve()) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise _refused(f"{text} lies outside of the folders for disks and images ({allowed})")
    return resolved


def find_image(name: str, images_root: Path) -> Path:
    """The image that a spec calls ``name``: a path below ``images_root``, or a name within it.

    Raises ``RuntimeFailedError``: ``IMAGE_NOT_FOUND`` where there is none.
    """
    if "://" in name:
        # Not quoted: a URL may hold a password.
        text = f"images are not downloaded from URLs: put it into {images_root} and name it"
        raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, text)
    for suffix in _SUFFIXES:
        path = allowed_path(str(images_root / (name + suffix)), [images_root])
        if path.is_file():
            return path
    raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, f"no image {name!r} in {images_root}")


def marker_of(disk: Path) -> Marker | None:
    """Whose ``disk`` is, where we (or an agent of ours) made it."""
    try:
        read = json.loads(_marker_path(disk).read_text())
        return Marker(str(read["workload_id"]), str(read.get("backing", "")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Marker("")  # marked by something else: not ours to delete


async def make_disk(
    path: Path,
    workload_id: WorkloadId,
    *,
    form: str,
    size_gb: int,
    backing: Path | None = None,
    is_marked: bool = True,
) -> None:
    """Make a disk of ``size_gb`` (0: the size of its ``backing``), marked as the workload's.

    With ``backing`` it is a qcow2 overlay. One that is not marked is a volume's, and never deleted
    by us. Raises ``RuntimeFailedError``, and leaves nothing then.
    """
    words = ["create", "-q", "-f", form]
    if backing is not None:
        words += ["-b", str(backing), "-F", await _format(backing)]
    words += [str(path), *([f"{size_gb}G"] if size_gb else [])]
    if is_marked:
        _mark(path, Marker(workload_id, str(backing or "")))
    try:
        await _run(*words)
    except BaseException:
        delete_disk(path, workload_id)
        raise


async def clone_image(image: Path | None, path: Path, size_gb: int = 0) -> None:
    """A raw copy of ``image`` (``None``: of nothing), of ``size_gb`` where that is more.

    Raw images need no tool; others are converted by qemu-img. Raises ``RuntimeFailedError``, and
    leaves nothing then.
    """
    try:
        if image is None or await asyncio.to_thread(_is_raw, image):
            await asyncio.to_thread(_copy_raw, image, path)
        else:
            await _run("convert", "-q", "-O", "raw", str(image), str(path))
        await asyncio.to_thread(_grow, path, size_gb * _GIB)
    except OSError as error:
        await asyncio.to_thread(path.unlink, missing_ok=True)
        raise storage_failure(error, f"cannot make the disk {path}") from error
    except BaseException:
        await asyncio.to_thread(path.unlink, missing_ok=True)
        raise


def delete_disk(path: Path, workload_id: WorkloadId) -> bool:
    """Delete a disk and its marker if the marker names this workload; says whether it did."""
    marker = marker_of(path)
    if marker is None or marker.workload_id != workload_id:
        return False
    # The marker goes last: what is cut off between the two is finished by the next call.
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        _marker_path(path).unlink()
    return True


def storage_failure(error: OSError, what: str) -> RuntimeFailedError:
    """A failed write in the words of the port: a full disk is told apart."""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    code = FailureCode.STORAGE_FULL if is_full else FailureCode.RUNTIME_ERROR
    return RuntimeFailedError(code, f"{what}: {error.strerror or error}")


def _is_raw(image: Path) -> bool:
    with image.open("rb") as file:
        return file.read(len(_QCOW2)) != _QCOW2


def _copy_raw(image: Path | None, path: Path) -> None:
    """Copy what is not a hole."""
    with path.open("wb") as target:
        os.fchmod(target.fileno(), 0o600)
        if image is None:
            return
        with image.open("rb") as source:
            end = source.seek(0, os.SEEK_END)
            target.truncate(end)
            for start, stop in _extents(source.fileno(), end):
                _copy_extent(source.fileno(), target.fileno(), start, stop)


def _extents(source: int, end: int) -> Iterator[tuple[int, int]]:
    stop = 0
    while stop < end:
        try:
            start = os.lseek(source, stop, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole until the end
                return
            raise
        stop = os.lseek(source, start, os.SEEK_HOLE)
        yield start, stop


def _copy_extent(source: int, target: int, start: int, stop: int) -> None:
    while start < stop:
        content = os.pread(source, min(_COPY_BYTES, stop - start), start)
        if not content:
            return  # it became shorter meanwhile
        os.pwrite(target, content, start)
        start += len(content)


def _grow(path: Path, size: int) -> None:
    if size > path.stat().st_size:
        os.truncate(path, size)


def _marker_path(disk: Path) -> Path:
    return disk.with_name(disk.name + _MARKER_SUFFIX)


def _mark(disk: Path, marker: Marker) -> None:
    document = {"workload_id": marker.workload_id, "backing": marker.backing}
    try:
        _marker_path(disk).write_text(json.dumps(document) + "\n")
    except OSError as error:
        raise storage_failure(error, f"cannot make the disk {disk}") from error


async def _format(image: Path) -> str:
    described = json.loads(await _run("info", "--output=json", str(image)))
    return str(described["format"])


async def _run(*words: str) -> str:
    program = shutil.which(_TOOL)
    if program is None:
        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, f"no {_TOOL}: install qemu-utils")
    process = await asyncio.create_subprocess_exec(
        program,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise _tool_failure(errors.decode(errors="replace").strip())
    return output.decode(errors="replace")


def _tool_failure(text: str) -> RuntimeFailedError:
    # qemu-img tells causes by text alone; this one is strerror(ENOSPC), in the C locale.
    is_full = "No space left on device" in text
    code = FailureCode.STORAGE_FULL if is_full else FailureCode.RUNTIME_ERROR
    return RuntimeFailedError(code, text.removeprefix(f"{_TOOL}: ") or f"{_TOOL} failed")


def _refused(text: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.INVALID_SPEC, text)
