"""The kernel's list of mounts, as proc_pid_mountinfo(5) describes it."""

from __future__ import annotations

from pathlib import Path

from persys_agent.storage.mounts import (
    LinuxKernel,
    Mount,
    mount_at,
    mounts_below,
    parse_mountinfo,
)

TEXT = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
36 22 0:32 / /mnt/two\040words rw,noatime master:1 shared:7 - nfs4 nas:/srv/a\040b rw
37 22 0:33 /sub /mnt/back\134slash ro - tmpfs none\011tab rw
38 22 0:34 / /mnt/dash-name rw - fuse.x - rw
39 22 0:35 / /mnt/line\012end rw - tmpfs t rw

garbage
40 22 0:36 / /cut rw - tmpfs
"""


def test_lines_become_mounts() -> None:
    """Optional fields may be absent or many; octal escapes are undone; other lines are left out."""
    root, nfs, slash, dash, line_end = parse_mountinfo(TEXT)
    assert root == Mount("/", "ext4", "/dev/sda1", options=("rw", "relatime"))
    assert nfs == Mount("/mnt/two words", "nfs4", "nas:/srv/a b", options=("rw", "noatime"))
    assert slash == Mount("/mnt/back\\slash", "tmpfs", "none\ttab", "/sub", ("ro",))
    assert slash.is_read_only
    assert not nfs.is_read_only
    assert (dash.fs_type, dash.source) == ("fuse.x", "-")
    assert line_end.point == "/mnt/line\nend"


def test_of_mounts_on_one_another_the_last_is_seen() -> None:
    """What is below is hidden."""
    below, above = Mount("/m", "ext4", "a"), Mount("/m", "ext4", "b")
    assert mount_at((below, above), "/m") is above
    assert mount_at((below,), "/m/x") is None


def test_below_is_a_matter_of_folders() -> None:
    """/mnt/ab is not below /mnt/a."""
    mounts = tuple(Mount(point, "tmpfs", "t") for point in ("/", "/mnt/a", "/mnt/a/b", "/mnt/ab"))
    assert [each.point for each in mounts_below(mounts, "/mnt/a")] == ["/mnt/a", "/mnt/a/b"]


def test_this_kernel_answers() -> None:
    """/proc is mounted here, and proc is a file system of every kernel."""
    kernel = LinuxKernel()
    found = mount_at(kernel.mounts(), "/proc")
    assert found is not None
    assert found.fs_type == "proc"
    assert kernel.knows_filesystem("proc")
    assert not kernel.knows_filesystem("no-such-fs")


def test_files_of_a_kernel_are_read(tmp_path: Path) -> None:
    """File systems with and without a device, buses, and points that are no UTF-8."""
    (tmp_path / "self").mkdir()
    (tmp_path / "filesystems").write_text("nodev\tnfs\n\text4\n")
    (tmp_path / "self" / "mountinfo").write_bytes(b"1 0 0:1 / /\xff rw - tmpfs t rw\n")
    (tmp_path / "bus" / "rbd").mkdir(parents=True)
    kernel = LinuxKernel(proc=tmp_path, sys=tmp_path)
    assert kernel.knows_filesystem("nfs")
    assert kernel.knows_filesystem("ext4")
    assert not kernel.knows_filesystem("nodev")
    assert kernel.has_bus("rbd")
    assert [each.point for each in kernel.mounts()] == ["/\udcff"]
