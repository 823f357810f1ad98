"""Guests for tests of machines: boot sectors, and Debian's kernel with a busybox initramfs."""

from __future__ import annotations

import gzip
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.servers.required import absent

__all__ = ["BUSY", "IDLE", "POWER_OFF", "boot_sector", "initramfs", "kernel"]

_SECTOR = 512
_DISK_BYTES = 1024 * 1024  # a BIOS does not boot from a smaller disk
IDLE = bytes.fromhex("fa f4 eb fd")
"""cli; hlt, again and again: runs until its power is cut, and hears no power button."""
BUSY = bytes.fromhex("eb fe")
"""Jumps to itself, and never halts."""
POWER_OFF = bytes.fromhex("fa ba0406 b80020 ef f4 eb fd")
"""Writes S5 to the ACPI port that SeaBIOS gives the PC machines (0x604)."""

_MODULES = (
    "virtio_pci", "virtio_blk", "virtio_net", "isofs", "button", "evdev", "af_packet",
)  # fmt: skip
_INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /mnt
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules.list); do /bin/busybox insmod /modules/$module; done
for disk in /dev/vd?; do
  /bin/busybox mount -t iso9660 -o ro $disk /mnt 2>/dev/null && break
done
while read line; do echo "user-data: $line"; done < /mnt/user-data
while read line; do echo "meta-data: $line"; done < /mnt/meta-data
/bin/busybox ip link set eth0 up
/bin/busybox udhcpc -i eth0 -n -q -t 5 -T 1 -s /bin/dhcp >/dev/null 2>&1 && echo "dhcp: done"
# Opened before it is said: a button that is pressed from now on is not missed.
last=2
for input in /dev/input/event*; do last=$((last + 1)); eval "exec $last<$input"; done
echo "guest: ready"
for input in $(/bin/busybox seq 3 $last); do
  (/bin/busybox head -c 1 <&$input >/dev/null
   echo "guest: power button"
   /bin/busybox poweroff -f) &
done
wait
"""
_DHCP = """\
#!/bin/busybox sh
[ "$1" = bound ] && /bin/busybox ip addr add $ip/24 dev $interface
exit 0
"""


def boot_sector(code: bytes) -> bytes:
    """A disk whose first sector runs ``code``."""
    return (code.ljust(_SECTOR - 2, b"\0") + b"\x55\xaa").ljust(_DISK_BYTES, b"\0")


def kernel() -> Path:
    """The newest kernel of Debian's cloud flavour; the test is skipped where there is none."""
    found = sorted(Path("/boot").glob("vmlinuz-*-cloud-*"))
    if not found:
        absent("libvirtd", "no kernel in /boot: install linux-image-cloud-amd64")
    return found[-1]


def initramfs(path: Path) -> None:
    """Write an initramfs whose init prints the seed's user-data, and ends with the power button."""
    if shutil.which("cpio") is None or not Path("/bin/busybox").exists():
        absent("libvirtd", "no cpio or no /bin/busybox: install cpio and busybox-static")
    root = path.with_suffix(".d")
    for folder in ("bin", "modules"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    _script(root / "init", _INIT)
    _script(root / "bin/dhcp", _DHCP)
    names = [_copied(module, root / "modules") for module in _with_dependencies(_MODULES)]
    (root / "modules.list").write_text("\n".join(names) + "\n")
    listing = "\n".join(str(each.relative_to(root)) for each in sorted(root.rglob("*")))
    archive = subprocess.run(
        ["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"],
        input=listing.encode(), cwd=root, capture_output=True, check=True,
    )  # fmt: skip
    path.write_bytes(gzip.compress(archive.stdout, 1))
    shutil.rmtree(root)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _copied(module: Path, folder: Path) -> str:
    shutil.copy(module, folder / module.name)
    return module.name


def _with_dependencies(names: Iterable[str]) -> Iterator[Path]:
    """The files of these modules, each after those that it needs; what is built in has none."""
    folder = Path("/lib/modules") / kernel().name.removeprefix("vmlinuz-")
    needs: dict[str, list[str]] = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        name, _, rest = line.partition(":")
        needs[name] = rest.split()
    by_name = {Path(name).stem.replace("-", "_"): name for name in needs}
    seen: set[str] = set()
    for name in names:
        if name in by_name:
            chain = [*reversed(needs[by_name[name]]), by_name[name]]
            yield from (folder / each for each in chain if each not in seen)
            seen.update(chain)
