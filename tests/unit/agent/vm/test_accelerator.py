"""The probe that tells whether KVM works."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from persys_agent.runtimes.vm.accelerator import kvm_works, probe_firmware

QEMU = shutil.which("qemu-system-x86_64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="there is no qemu-system-x86_64")


def test_the_firmware_begins_where_a_cpu_does() -> None:
    """64 KB that end at the top of memory, with a jump to their first byte at the reset vector."""
    image = probe_firmware()
    assert len(image) == 64 * 1024
    assert image[0xFFF0] == 0xE9
    distance = int.from_bytes(image[0xFFF1:0xFFF3], "little")
    assert (0xFFF0 + 3 + distance) % len(image) == 0


@needs_qemu
@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_cpu_that_works_passes() -> None:
    """Emulation takes the way to 64-bit code, so the probe itself is right."""
    assert await kvm_works(str(QEMU), accelerator="tcg", cpu="max")


@pytest.mark.asyncio
async def test_an_emulator_that_fails_does_not_pass(tmp_path: Path) -> None:
    """No emulator, one that cannot, and one that ends well without having run anything."""
    assert not await kvm_works(str(tmp_path / "qemu-system-x86_64"))
    for code in (0, 1):
        script = tmp_path / f"{code}-x86_64"
        script.write_text(f"#!/bin/sh\nexit {code}\n")
        script.chmod(0o755)
        assert not await kvm_works(str(script))


@pytest.mark.asyncio
async def test_a_guest_that_hangs_is_given_up(tmp_path: Path) -> None:
    """The probe ends, and so does what it started."""
    script, pid = tmp_path / "hangs-x86_64", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    script.chmod(0o755)
    began = time.monotonic()
    assert not await kvm_works(str(script), seconds=0.2)
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.asyncio
async def test_other_architectures_are_believed() -> None:
    """The firmware is x86; elsewhere what libvirt offers counts."""
    assert await kvm_works("/usr/bin/qemu-system-aarch64")
