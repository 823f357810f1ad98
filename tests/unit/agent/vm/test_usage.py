"""Counters in libvirt's statistics."""

from persys_agent.runtimes.machine.usage import Counters
from persys_agent.runtimes.vm.usage import counters_of


def test_counters_are_sums() -> None:
    """Disks and NICs are added up; memory is what the process holds."""
    stats: dict[str, object] = {
        "cpu.time": 7,
        "balloon.rss": 2,
        "balloon.current": 9,
        "block.count": 2,
        "block.0.rd.bytes": 1,
        "block.0.wr.bytes": 10,
        "block.1.rd.bytes": 2,
        "net.count": 1,
        "net.0.rx.bytes": 100,
        "net.0.tx.bytes": 200,
    }
    assert counters_of(stats) == Counters(7, 2048, 3, 10, 100, 200)


def test_what_is_missing_is_zero() -> None:
    """A domain without disks, or a driver that counts less, is no error."""
    assert counters_of({"balloon.current": 1}) == Counters(0, 1024, 0, 0, 0, 0)
