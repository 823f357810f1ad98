"""Whether KVM works, found out by running a guest of 173 bytes under it.

``/dev/kvm`` may exist and still run no usual kernel (nested and para-virtualised hosts). The guest
is a firmware that goes the way every 64-bit kernel goes (protected mode, page tables, long mode)
and then writes to QEMU's exit port: if QEMU ends with the code for that, KVM works. It takes some
ten milliseconds where it works, and five seconds at most where the guest hangs.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

__all__ = ["kvm_works", "probe_firmware"]

_PROBE_SECONDS = 5.0
_SIZE = 64 * 1024
_RESET_VECTOR = 0xFFF0
_EXIT_CODE = (0x10 << 1) | 1
_CODE = bytes.fromhex(
    "fa 2e660f0116a800"  # cli; lgdt cs:[gdtr]
    "0f20c0 0c01 0f22c0 66ea18000f000800"  # cr0.PE = 1; jump to 32-bit code
    "66b81000 8ed8 8ec0 8ed0"  # flat data segments
    "bf00100000 31c0 b9000c0000 f3ab"  # clear three pages for the tables
    "c7050010000003200000 c7050020000003300000 c7050030000083000000"  # one page of 2 MB
    "0f20e0 0c20 0f22e0 b800100000 0f22d8"  # cr4.PAE = 1; cr3 = tables
    "b9800000c0 0f32 80cc01 0f30"  # EFER.LME = 1
    "0f20c0 0d00000080 0f22c0 ea7c000f001800"  # cr0.PG = 1; jump to 64-bit code
    "b010 e6f4 f4"  # write 0x10 to the exit port; halt
    "8db400008d7400 0000000000000000"  # padding; the null descriptor
    "ffff0000009acf00 ffff00000092cf00 ffff0000009aaf00 1f0088000f00"  # descriptors, gdtr
)
_JUMP = bytes.fromhex("e90d00")  # from the reset vector to the first byte, 64 KB wrap around


def probe_firmware() -> bytes:
    """The image that QEMU is given as its firmware."""
    image = bytearray(b"\xf4" * _SIZE)
    image[: len(_CODE)] = _CODE
    image[_RESET_VECTOR : _RESET_VECTOR + len(_JUMP)] = _JUMP
    return bytes(image)


async def kvm_works(
    emulator: str, *, accelerator: str = "kvm", cpu: str = "host", seconds: float = _PROBE_SECONDS
) -> bool:
    """Whether a 64-bit guest runs under KVM with this emulator (x86 only; others are believed).

    A guest that has not ended after ``seconds`` hangs.
    """
    if not emulator.endswith(("x86_64", "kvm")):
        return True
    image = await asyncio.to_thread(_write_firmware)
    try:
        return await _exit_code(emulator, accelerator, cpu, image, seconds) == _EXIT_CODE
    finally:
        image.unlink(missing_ok=True)


def _write_firmware() -> Path:
    with tempfile.NamedTemporaryFile(prefix="persys-kvm-", delete=False) as file:
        file.write(probe_firmware())
        return Path(file.name)


async def _exit_code(
    emulator: str, accelerator: str, cpu: str, image: Path, seconds: float
) -> int | None:
    words = ["-accel", accelerator, "-cpu", cpu, "-machine", "pc", "-m", "16", "-bios", str(image)]
    exit_port = "isa-debug-exit,iobase=0xf4,iosize=0x1"
    try:
        process = await asyncio.create_subprocess_exec(
            emulator, *words, "-device", exit_port, "-display", "none", "-nodefaults",
            "-no-user-config", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
