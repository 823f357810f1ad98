"""RPCs of the contract that this release does not carry out, and what to use instead.

They answer UNIMPLEMENTED with the text below. A test compares the names with the contract, so
that none is forgotten and none is answered in two ways.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.errors import LaterError

__all__ = ["LATER", "LaterRpcs"]

_DISKS = "standalone disks are not in this release; use managed_volumes in a workload's spec"
_BUCKETS = "buckets in Ceph RGW are not in this release; use the S3 API of your gateway"

LATER: Mapping[str, str] = {
    "ControlStream": "is not served; call RegisterNode, Heartbeat, ApplyWorkload and"
    " DeleteWorkload, which carry the same messages",
    "CreateDisk": _DISKS,
    "ListDisks": _DISKS,
    "GetDisk": _DISKS,
    "DeleteDisk": _DISKS,
    "CreateBucket": _BUCKETS,
    "ListBuckets": _BUCKETS,
    "GetBucket": _BUCKETS,
    "DeleteBucket": _BUCKETS,
    "GetBucketAccess": _BUCKETS,
    "ListBucketObjects": _BUCKETS,
}


class LaterRpcs(control_pb2_grpc.AgentControlServicer):
    """Every RPC of ``LATER``."""


def _refusal(name: str, text: str) -> Callable[[object, object, Context], Awaitable[None]]:
    async def refuse(self: object, request: object, context: Context) -> None:
        """Answer UNIMPLEMENTED with what to use instead."""
        raise LaterError(f"{name}: {text}")

    return refuse


for _name, _text in LATER.items():
    setattr(LaterRpcs, _name, _refusal(_name, _text))
