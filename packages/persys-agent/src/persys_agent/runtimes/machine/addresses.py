"""The hardware addresses of a machine's NICs.

Decided here: an address that the spec leaves open is derived from the workload's id and the NIC's
place, so that a guest that is made anew keeps its DHCP lease, and two guests never share one.
"""

from __future__ import annotations

import hashlib
import re

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import NetworkSpec

__all__ = ["mac_address"]

_VENDOR = "52:54:00"  # QEMU's own, locally administered
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


def mac_address(workload_id: WorkloadId, index: int, network: NetworkSpec) -> str:
    """The address of the NIC at ``index``, in lower case. Raises ``RuntimeFailedError``."""
    given = network.mac_address.strip().lower().replace("-", ":")
    if not given:
        digest = hashlib.sha256(f"{workload_id}/{index}".encode()).hexdigest()
        return ":".join([_VENDOR, digest[:2], digest[2:4], digest[4:6]])
    # A set lowest bit of the first byte would make it a group's address.
    if not _MAC.match(given) or int(given[:2], 16) & 1:
        text = f"{network.mac_address!r} is no hardware address of a NIC"
        raise RuntimeFailedError(FailureCode.INVALID_SPEC, text)
    return given
