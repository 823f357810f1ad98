"""The machine: what it is, and what it uses, without waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psutil
import pytest

from persys_agent.host.facts import address_towards, boot_id, read_facts
from persys_agent.host.usage import CpuTimes, HostMeter, busy_percent, read_cpu_times
from persys_agent.settings.identity import chosen_node_id
from persys_core.model.ids import is_valid_id


def test_facts_are_those_of_this_machine() -> None:
    """Processors in millicores, memory in MiB, disk in GiB; words as node labels have them."""
    facts = read_facts()
    assert facts.cpu_millicores == (psutil.cpu_count() or 1) * 1000
    assert facts.memory_mb == psutil.virtual_memory().total >> 20
    assert facts.root_pool.total_gb == psutil.disk_usage("/").total >> 30
    assert (facts.root_pool.name, facts.root_pool.type) == ("root", "local")
    assert facts.system == "linux"
    assert facts.hostname == socket.gethostname()
    assert "127.0.0.1" in facts.addresses
    assert is_valid_id(chosen_node_id("", facts.hostname, facts.machine_id, facts.mac))
    assert len(boot_id()) == 36


def test_the_way_to_a_target() -> None:
    """The address that packets leave from; nothing where there is no way or no target."""
    assert address_towards("127.0.0.1:8085") == "127.0.0.1"
    for nowhere in ("", "host", "127.0.0.1:none", "[::g]:1"):
        assert address_towards(nowhere) == ""


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (CpuTimes(100, 50), CpuTimes(110, 55), 50.0),
        (CpuTimes(100, 50), CpuTimes(110, 60), 0.0),
        (CpuTimes(100, 50), CpuTimes(110, 50), 100.0),
        (CpuTimes(100, 50), CpuTimes(110, 61), 0.0),
        (CpuTimes(100, 50), CpuTimes(100.01, 50), None),
        (CpuTimes(100, 50), CpuTimes(90, 40), None),
    ],
)
def test_busy_percent(before: CpuTimes, now: CpuTimes, expected: float | None) -> None:
    """The share that was not idle; nothing where too little passed or counters went back."""
    assert busy_percent(before, now) == expected


def test_use_is_the_difference_of_two_readings() -> None:
    """Nobody sleeps (defects 25, 27); a second reading at once repeats what is known."""
    readings: Iterator[CpuTimes] = iter(
        [CpuTimes(0, 0), CpuTimes(10, 7.5), CpuTimes(10, 7.5), CpuTimes(20, 7.5)]
    )
    meter = HostMeter(cpu_times=lambda: next(readings))
    assert meter.use.cpu_percent == 0
    assert meter.measure().cpu_percent == 25
    assert meter.measure().cpu_percent == 25
    assert meter.measure().cpu_percent == 100
    assert meter.use.used.cpu_millicores == (psutil.cpu_count() or 1) * 1000
    assert meter.use.used.memory_mb > 0
    assert 0 < meter.use.disk_percent <= 100


def test_the_kernels_counters_go_on() -> None:
    """Idle is part of the whole."""
    times = read_cpu_times()
    assert 0 < times.idle <= times.total
