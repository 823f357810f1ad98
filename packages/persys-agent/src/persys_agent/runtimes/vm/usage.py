"""libvirt's counters of a domain, from its bulk statistics."""

from __future__ import annotations

from collections.abc import Mapping

from persys_agent.runtimes.machine.usage import Counters

__all__ = ["SOURCE", "STATS", "counters_of"]

SOURCE = "libvirt.domain_stats"
STATS = 2 | 4 | 16 | 32
"""VIR_DOMAIN_STATS_CPU_TOTAL, BALLOON, INTERFACE and BLOCK."""
_KIB = 1024


def counters_of(stats: Mapping[str, object]) -> Counters:
    """The counters in one record of ``getAllDomainStats``; what is missing is zero."""
    return Counters(
        cpu_ns=_number(stats.get("cpu.time")),
        memory_bytes=_KIB * (_number(stats.get("balloon.rss") or stats.get("balloon.current"))),
        disk_read_bytes=_sum(stats, "block", "rd.bytes"),
        disk_write_bytes=_sum(stats, "block", "wr.bytes"),
        net_rx_bytes=_sum(stats, "net", "rx.bytes"),
        net_tx_bytes=_sum(stats, "net", "tx.bytes"),
    )


def _sum(stats: Mapping[str, object], kind: str, suffix: str) -> int:
    count = _number(stats.get(f"{kind}.count"))
    return sum(_number(stats.get(f"{kind}.{index}.{suffix}")) for index in range(count))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
