"""Which endpoint is asked, for how long, and what is sent again."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import grpc
import pytest

from persys_adapters.etcd.client import (
    AmbiguousWriteError,
    AuthenticationError,
    DeadlineError,
    EtcdClient,
    EtcdConfig,
    EtcdError,
    NoLeaderError,
    PreconditionError,
    Put,
    UnavailableError,
    end_of_prefix,
)
from persys_adapters.etcd.client import rpc_pb2 as pb
from persys_adapters.etcd.client.auth import Tokens
from persys_adapters.etcd.client.wire import TXN
from tests.unit.etcd_client.fake_etcd import Context, client_of, fake_etcd, header, silence

pytestmark = pytest.mark.slow

C = grpc.StatusCode
QUICK = {
    "call_timeout": timedelta(seconds=0.6),
    "attempt_timeout": timedelta(seconds=0.2),
    "connect_timeout": timedelta(seconds=1),
}
Ask: TypeAlias = Callable[[EtcdClient], Awaitable[object]]
ASK: dict[str, Ask] = {
    "KV/Range": lambda client: client.range(b"a"),
    "KV/Txn": lambda client: client.txn((), [Put(b"a", b"1")]),
    "Lease/LeaseGrant": lambda client: client.lease_grant(5),
    "Lease/LeaseKeepAlive": lambda client: client.keep_alive(5),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ASK)
async def test_every_status_of_every_call_is_ours(method: str) -> None:
    """Whatever status etcd ends a call with, the caller meets an `EtcdError` (L03)."""
    quick = {**QUICK, "call_timeout": timedelta(seconds=0.05)}
    async with fake_etcd() as fake, client_of(fake, **quick) as client:
        for code in [code for code in C if code is not C.OK]:
            fake.fails(method, code, "never seen before")
            with pytest.raises(EtcdError):
                await ASK[method](client)


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [C.UNKNOWN, C.INTERNAL, C.CANCELLED, C.ABORTED, C.UNIMPLEMENTED])
async def test_a_watch_outlives_unknown_statuses(code: grpc.StatusCode) -> None:
    """A watch that ends with an unfamiliar status is opened anew (L03)."""

    async def watch(_: Any, __: Context) -> Any:
        yield pb.WatchResponse(header=header(5), created=True)
        await silence()

    async with fake_etcd() as fake, client_of(fake) as client:
        fake.fails("Watch/Watch", code, "never seen before")
        watching = client.watch(b"a")
        async with asyncio.timeout(5):
            while fake.count("Watch/Watch") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            fake.streams["Watch/Watch"] = watch
            while watching.next_revision != 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_read_goes_to_another_endpoint_which_then_stays() -> None:
    """A read that fails is answered elsewhere within the call, and later ones begin there."""
    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good) as client:
        bad.fails("KV/Range", C.UNAVAILABLE, "etcdserver: request timed out")
        good.answers("KV/Range", pb.RangeResponse(header=header(7)))
        for _ in range(3):
            assert (await client.range(b"a")).revision == 7
    assert (bad.count("KV/Range"), good.count("KV/Range")) == (1, 3)


@pytest.mark.asyncio
async def test_a_write_that_may_be_done_is_not_sent_again() -> None:
    """A transaction that was applied and then failed is ambiguous, and was sent once (E06)."""
    applied: list[object] = []

    async def apply_and_fail(request: object, context: Context) -> Any:
        applied.append(request)
        await context.abort(C.UNKNOWN, "context deadline exceeded")

    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good) as client:
        bad.unary["KV/Txn"] = apply_and_fail
        good.answers("KV/Txn", pb.TxnResponse(header=header(7), succeeded=True))
        with pytest.raises(AmbiguousWriteError) as caught:
            await client.put(b"a", b"1")
        assert (await client.put(b"a", b"1")).revision == 7
    assert caught.value.maybe_applied
    assert isinstance(caught.value.__cause__, DeadlineError)
    assert len(applied) == good.count("KV/Txn") == 1


@pytest.mark.asyncio
async def test_a_write_that_was_refused_unsent_goes_elsewhere() -> None:
    """A member without a leader proposes nothing, so the write is sent to another one."""
    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good) as client:
        bad.fails("KV/Txn", C.UNAVAILABLE, "etcdserver: no leader")
        good.answers("KV/Txn", pb.TxnResponse(header=header(7), succeeded=True))
        assert (await client.put(b"a", b"1")).revision == 7


@pytest.mark.asyncio
async def test_a_write_goes_past_an_endpoint_that_is_not_there() -> None:
    """Where nobody listens nothing was sent: the write succeeds on the next endpoint."""
    async with fake_etcd() as gone:
        pass
    async with fake_etcd() as good, client_of(gone, good) as client:
        good.answers("KV/Txn", pb.TxnResponse(header=header(7), succeeded=True))
        assert (await client.put(b"a", b"1")).revision == 7


@pytest.mark.asyncio
async def test_a_write_goes_past_an_endpoint_that_does_not_speak() -> None:
    """A process that accepts connections and says nothing delays a write by the connect timeout."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # the kernel accepts for it
        endpoint = f"127.0.0.1:{frozen.getsockname()[1]}"
        async with fake_etcd() as good:
            good.answers("KV/Txn", pb.TxnResponse(header=header(7), succeeded=True))
            brief = timedelta(seconds=0.3)
            config = EtcdConfig((endpoint, good.endpoint), connect_timeout=brief)
            async with EtcdClient(config) as client, asyncio.timeout(3):
                assert (await client.put(b"a", b"1")).revision == 7


@pytest.mark.asyncio
async def test_a_silent_endpoint_costs_one_attempt() -> None:
    """A read waits for a silent endpoint for the attempt timeout, then is answered elsewhere."""
    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good, **QUICK) as client:
        bad.unary["KV/Range"] = silence
        good.answers("KV/Range", pb.RangeResponse(header=header(7)))
        assert (await client.range(b"a")).revision == 7


@pytest.mark.asyncio
async def test_the_total_deadline_ends_every_call() -> None:
    """With all endpoints silent a read fails as unavailable within its total deadline."""
    async with fake_etcd() as fake, client_of(fake, **QUICK) as client, asyncio.timeout(5):
        fake.unary["KV/Range"] = silence
        with pytest.raises(UnavailableError):
            await client.range(b"a")
    assert fake.count("KV/Range") >= 2


@pytest.mark.asyncio
async def test_calls_ask_for_a_leader_except_where_none_is_needed() -> None:
    """Everything that needs a quorum says so, or its loss would be silent; local reads do not."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.answers("KV/Range", pb.RangeResponse(header=header(7)))
        fake.answers("Maintenance/Status", pb.StatusResponse(header=header(7)))
        await client.range(b"a")
        await client.range(b"a", serializable=True)
        await client.status()
    asked, local = fake.metadata("KV/Range")
    assert asked["hasleader"] == "true"
    assert "hasleader" not in local
    assert "hasleader" not in fake.metadata("Maintenance/Status")[0]


@pytest.mark.asyncio
async def test_a_lost_quorum_is_told() -> None:
    """When no member has a leader, that is what the caller is told."""
    async with fake_etcd() as fake, client_of(fake, **QUICK) as client:
        fake.fails("KV/Range", C.UNAVAILABLE, "etcdserver: no leader")
        with pytest.raises(NoLeaderError, match="half of the members"):
            await client.range(b"a")


class Guard:
    """An etcd with one user whose token can be made invalid."""

    def __init__(self) -> None:
        self.valid = 1
        self.asked = 0

    async def authenticate(self, request: pb.AuthenticateRequest, context: Context) -> Any:
        """Give out the valid token."""
        self.asked += 1
        if request.password != "right":
            await context.abort(
                C.INVALID_ARGUMENT,
                "etcdserver: authentication failed, invalid user ID or password",
            )
        return pb.AuthenticateResponse(header=header(1), token=f"t{self.valid}")

    async def txn(self, _: object, context: Context) -> Any:
        """Demand the valid token."""
        if dict(context.invocation_metadata() or ()).get("token") != f"t{self.valid}":
            await context.abort(C.UNAUTHENTICATED, "etcdserver: invalid auth token")
        return pb.TxnResponse(header=header(7), succeeded=True)


@pytest.mark.asyncio
async def test_a_token_is_got_once_and_renewed_once() -> None:
    """Calls that begin together share one request for a token, and one for its successor; a write
    that was refused for its token is sent again."""
    guard = Guard()
    async with fake_etcd() as fake, client_of(fake, user="u", password="right") as client:
        fake.unary |= {"Auth/Authenticate": guard.authenticate, "KV/Txn": guard.txn}
        await asyncio.gather(*(client.put(b"a", b"1") for _ in range(5)))
        assert guard.asked == 1
        guard.valid += 1
        await asyncio.gather(*(client.put(b"a", b"1") for _ in range(5)))
        assert guard.asked == 2


@pytest.mark.asyncio
async def test_a_token_that_never_helps_is_an_error() -> None:
    """Renewing is tried once per call, not for ever."""
    guard = Guard()
    async with fake_etcd() as fake, client_of(fake, user="u", password="right") as client:
        fake.unary["Auth/Authenticate"] = guard.authenticate
        fake.fails("KV/Txn", C.UNAUTHENTICATED, "etcdserver: invalid auth token")
        with pytest.raises(AuthenticationError):
            await client.put(b"a", b"1")
    assert fake.count("KV/Txn") == 2


@pytest.mark.asyncio
async def test_a_wrong_password_is_told_without_it() -> None:
    """The error names what to check and not the password; nothing is sent on."""
    guard = Guard()
    async with fake_etcd() as fake, client_of(fake, user="u", password="wrong!") as client:
        fake.unary |= {"Auth/Authenticate": guard.authenticate, "KV/Txn": guard.txn}
        with pytest.raises(AuthenticationError, match="check the user") as caught:
            await client.put(b"a", b"1")
    assert "wrong!" not in str(caught.value)
    assert not caught.value.maybe_applied
    assert fake.count("KV/Txn") == 0


@pytest.mark.asyncio
async def test_authentication_that_is_off_needs_no_token() -> None:
    """A user is given, the cluster has no users: calls go without a token."""
    async with fake_etcd() as fake, client_of(fake, user="u", password="p") as client:
        fake.fails(
            "Auth/Authenticate", C.FAILED_PRECONDITION, "etcdserver: authentication is not enabled"
        )
        fake.answers("KV/Txn", pb.TxnResponse(header=header(7), succeeded=True))
        await client.put(b"a", b"1")
        await client.put(b"a", b"1")
    assert fake.count("Auth/Authenticate") == 1
    assert all("token" not in each for each in fake.metadata("KV/Txn"))


@pytest.mark.asyncio
async def test_a_lease_request_is_repeated_with_its_id() -> None:
    """A grant whose answer was lost is asked for again under the same id, and is then there."""
    ids: list[int] = []

    async def grant(request: pb.LeaseGrantRequest, context: Context) -> Any:
        ids.append(request.id)
        if len(ids) == 1:
            await context.abort(C.UNAVAILABLE, "Socket closed")
        await context.abort(C.FAILED_PRECONDITION, "etcdserver: lease already exists")

    async with fake_etcd() as fake, client_of(fake) as client:
        fake.unary["Lease/LeaseGrant"] = grant
        before = asyncio.get_running_loop().time()
        lease = await client.lease_grant(9)
        assert ids == [lease.id, lease.id]
        assert before + 9 <= lease.deadline <= asyncio.get_running_loop().time() + 9
        with pytest.raises(PreconditionError):
            await client.lease_grant(9, lease.id)


@pytest.mark.asyncio
async def test_a_closed_client_is_unavailable() -> None:
    """After closing every call says so, and a call under way ends as unavailable."""
    async with fake_etcd() as fake:
        fake.unary["KV/Txn"] = silence
        async with client_of(fake) as client:
            under_way = asyncio.create_task(client.put(b"a", b"1"))
            async with asyncio.timeout(5):
                while not fake.count("KV/Txn"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        with pytest.raises(AmbiguousWriteError):
            await under_way
        with pytest.raises(UnavailableError, match="closed"):
            await client.range(b"a")
        with pytest.raises(UnavailableError, match="closed"):
            await client.keep_alive(1)


@pytest.mark.asyncio
async def test_cancelling_a_call_cancels_it() -> None:
    """A caller that is cancelled is not told that etcd is unavailable."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.unary["KV/Range"] = silence
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.range(b"a")


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", b"\x00"), (b"", b"\x00")]
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    """The first key after all that begin with a prefix; zero stands for the end of all keys."""
    assert end_of_prefix(prefix) == end


@pytest.mark.asyncio
async def test_a_late_failure_does_not_give_up_the_new_token() -> None:
    """A call that failed with the old token after it was renewed uses the new one as it is."""
    asked: list[float] = []

    async def authenticate(timeout: float) -> str:
        asked.append(timeout)
        return f"t{len(asked)}"

    tokens = Tokens(authenticate)
    await tokens.metadata(TXN, 1)
    assert tokens.renew(0)
    await tokens.metadata(TXN, 1)
    assert tokens.renew(0)
    assert dict(await tokens.metadata(TXN, 1)) == {"hasleader": "true", "token": "t2"}
    assert not Tokens(None).renew(0)
