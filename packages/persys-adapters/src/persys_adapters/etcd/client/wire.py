"""Between the values and etcd's messages, and the methods that are called.

Decided here: each method's path, what may be sent again without asking, and what needs a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, assert_never

from attrs import frozen
from google.protobuf.message import Message

from persys_adapters.etcd.client import rpc_pb2 as pb
from persys_adapters.etcd.client.values import (
    Compare,
    DeleteKey,
    DeleteResult,
    GetKey,
    KeyEvent,
    KeyValue,
    Operation,
    Put,
    PutResult,
    RangeResult,
    Response,
    TxnResult,
)

__all__ = [
    "ALARM",
    "AUTHENTICATE",
    "COMPACT",
    "DEFRAGMENT",
    "DELETE",
    "KEEP_ALIVE",
    "LEASE_GRANT",
    "LEASE_REVOKE",
    "LEASE_TTL",
    "MEMBER_LIST",
    "RANGE",
    "RANGE_LOCAL",
    "STATUS",
    "TXN",
    "TXN_READ",
    "WATCH",
    "Method",
    "event_of",
    "range_result",
    "txn_request",
    "txn_result",
]

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)


@frozen(eq=False)
class Method(Generic[Request, Answer]):
    """An RPC. ``repeatable``: doing it twice is doing it once, so it may be sent again when nobody
    knows. ``wants_leader``: a member without a leader is to refuse it rather than wait."""

    path: str
    encode: Callable[[Request], bytes]
    decode: Callable[[bytes], Answer]
    repeatable: bool = True
    wants_leader: bool = True
    authenticated: bool = True


def _method(
    path: str, request: type[Request], answer: type[Answer], **more: bool
) -> Method[Request, Answer]:
    decode: Callable[[bytes], Any] = answer.FromString
    encode: Callable[[Any], bytes] = request.SerializeToString
    return Method(f"/etcdserverpb.{path}", encode, decode, **more)


RANGE = _method("KV/Range", pb.RangeRequest, pb.RangeResponse)
RANGE_LOCAL = _method("KV/Range", pb.RangeRequest, pb.RangeResponse, wants_leader=False)
TXN = _method("KV/Txn", pb.TxnRequest, pb.TxnResponse, repeatable=False)
TXN_READ = _method("KV/Txn", pb.TxnRequest, pb.TxnResponse)
DELETE = _method("KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse, repeatable=False)
COMPACT = _method("KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = _method("Watch/Watch", pb.WatchRequest, pb.WatchResponse)
LEASE_GRANT = _method("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = _method("Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE = _method("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse)
LEASE_TTL = _method("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse)
MEMBER_LIST = _method(
    "Cluster/MemberList", pb.MemberListRequest, pb.MemberListResponse, wants_leader=False
)
STATUS = _method("Maintenance/Status", pb.StatusRequest, pb.StatusResponse, wants_leader=False)
ALARM = _method("Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse)
DEFRAGMENT = _method(
    "Maintenance/Defragment", pb.DefragmentRequest, pb.DefragmentResponse, wants_leader=False
)
AUTHENTICATE = _method(
    "Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, authenticated=False
)


def key_value_of(kv: pb.KeyValue) -> KeyValue:
    """A key as etcd sent it."""
    return KeyValue(kv.key, kv.value, kv.mod_revision, kv.create_revision, kv.version, kv.lease)


def event_of(event: pb.Event) -> KeyEvent:
    """A change as etcd sent it."""
    return KeyEvent(key_value_of(event.kv), event.type == pb.Event.DELETE)


def range_result(answer: pb.RangeResponse) -> RangeResult:
    """A read's outcome."""
    header = answer.header
    kvs = tuple(map(key_value_of, answer.kvs))
    return RangeResult(header.revision, header.cluster_id, kvs, answer.more, answer.count)


def txn_request(
    compares: Iterable[Compare], success: Iterable[Operation], failure: Iterable[Operation]
) -> pb.TxnRequest:
    """A transaction as etcd takes it."""
    return pb.TxnRequest(
        compare=map(_compare, compares),
        success=map(_operation, success),
        failure=map(_operation, failure),
    )


def txn_result(answer: pb.TxnResponse) -> TxnResult:
    """A transaction's outcome. The headers within have no cluster id, so all get the outer one."""
    header = answer.header
    revision, cluster_id = header.revision, header.cluster_id
    responses = tuple(_response(each, revision, cluster_id) for each in answer.responses)
    return TxnResult(answer.succeeded, revision, cluster_id, responses)


def _compare(compare: Compare) -> pb.Compare:
    key, target = compare.key, pb.Compare
    if compare.mod_revision is not None:
        return target(target=target.MOD, key=key, mod_revision=compare.mod_revision)
    if compare.create_revision is not None:
        return target(target=target.CREATE, key=key, create_revision=compare.create_revision)
    if compare.version is not None:
        return target(target=target.VERSION, key=key, version=compare.version)
    if compare.value is not None:
        return target(target=target.VALUE, key=key, value=compare.value)
    return target(target=target.LEASE, key=key, lease=compare.lease or 0)


def _operation(operation: Operation) -> pb.RequestOp:
    match operation:
        case Put(key, value, lease):
            return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))
        case DeleteKey(key, range_end):
            delete = pb.DeleteRangeRequest(key=key, range_end=range_end)
            return pb.RequestOp(request_delete_range=delete)
        case GetKey(key, range_end, limit, keys_only):
            get = pb.RangeRequest(key=key, range_end=range_end, limit=limit, keys_only=keys_only)
            return pb.RequestOp(request_range=get)
        case _:
            assert_never(operation)


def _response(each: pb.ResponseOp, revision: int, cluster_id: int) -> Response:
    match each.WhichOneof("response"):
        case "response_put":
            return PutResult(revision, cluster_id)
        case "response_delete_range":
            return DeleteResult(revision, cluster_id, each.response_delete_range.deleted)
        case _:
            found = each.response_range
            kvs = tuple(map(key_value_of, found.kvs))
            return RangeResult(revision, cluster_id, kvs, found.more, found.count)
