"""A watch goes on, and loses nothing, whatever its streams do."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

import grpc
import pytest

from persys_adapters.etcd.client import (
    PermissionDeniedError,
    WatchBatch,
    WatchCompacted,
    WatchEvent,
    WatchRewound,
)
from persys_adapters.etcd.client import rpc_pb2 as pb
from tests.unit.etcd_client.fake_etcd import (
    Context,
    FakeEtcd,
    client_of,
    fake_etcd,
    header,
    silence,
)

pytestmark = pytest.mark.slow

C = grpc.StatusCode
IDLE = {"watch_idle_timeout": timedelta(seconds=0.4)}


def put(revision: int, key: str = "k") -> pb.Event:
    """A write."""
    kv = pb.KeyValue(key=key.encode(), value=b"v", mod_revision=revision, create_revision=revision)
    return pb.Event(kv=kv)


def created(revision: int, cluster_id: int = 1) -> pb.WatchResponse:
    """The first response of a stream."""
    return pb.WatchResponse(header=header(revision, cluster_id), created=True)


def changes(revision: int, *events: pb.Event, **more: Any) -> pb.WatchResponse:
    """A response with events, whose header is at ``revision``."""
    return pb.WatchResponse(header=header(revision), events=events, **more)


class Script:
    """Each stream plays one list of responses; after the last of one it ends as it is told."""

    def __init__(self, fake: FakeEtcd, *streams: list[pb.WatchResponse | C | None]) -> None:
        self._streams = list(streams)
        self.asked: list[pb.WatchCreateRequest] = []
        self.progress_asked = 0
        fake.streams["Watch/Watch"] = self._play

    def was_asked_for_progress(self, times: int) -> bool:
        """Whether progress was asked for more often than that."""
        return self.progress_asked > times

    async def _play(self, requests: AsyncIterator[pb.WatchRequest], context: Context) -> Any:
        first = await anext(requests)
        self.asked.append(first.create_request)
        for step in self._streams[min(len(self.asked), len(self._streams)) - 1]:
            if step is None:
                await silence()
            elif isinstance(step, grpc.StatusCode):
                await context.abort(step, "cut")
            else:
                yield step
        while True:
            await anext(requests)
            self.progress_asked += 1
            yield pb.WatchResponse(header=header(999), watch_id=-1)


async def take(watching: AsyncIterator[WatchEvent], count: int) -> list[WatchEvent]:
    """The next items."""
    async with asyncio.timeout(5):
        return [await anext(watching) for _ in range(count)]


def revisions(items: list[WatchEvent]) -> list[tuple[int, list[str]]]:
    """Revisions and keys of batches."""
    assert all(isinstance(item, WatchBatch) for item in items), items
    batches = [item for item in items if isinstance(item, WatchBatch)]
    return [(each.revision, [event.key.decode() for event in each.events]) for each in batches]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that tells nobody."""
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_it_resumes_after_the_last_event_not_after_the_header() -> None:
    """A stream that is cut during catch-up goes on behind what was delivered; its header was far
    ahead, and what lies between is not lost."""
    async with fake_etcd() as fake, client_of(fake) as client:
        script = Script(
            fake,
            [created(100), changes(100, put(5), put(6)), C.UNAVAILABLE],
            [created(100), changes(100, put(7)), None],
        )
        async with aclosing(client.watch(b"k", start_revision=5)) as watching:
            assert revisions(await take(watching, 3)) == [(5, ["k"]), (6, ["k"]), (7, ["k"])]
    assert [each.start_revision for each in script.asked] == [5, 7]


@pytest.mark.asyncio
async def test_from_now_is_pinned_at_creation() -> None:
    """Without a start revision, a stream that ends before any event is resumed where it began."""
    async with fake_etcd() as fake, client_of(fake) as client:
        script = Script(
            fake, [created(41), C.UNAVAILABLE], [created(50), changes(50, put(43)), None]
        )
        async with aclosing(client.watch(b"k")) as watching:
            assert revisions(await take(watching, 1)) == [(43, ["k"])]
    assert [each.start_revision for each in script.asked] == [0, 42]


@pytest.mark.asyncio
async def test_a_revision_that_is_cut_comes_whole() -> None:
    """A transaction of two writes, cut after the first of them: both are seen, together (E01)."""
    async with fake_etcd() as fake, client_of(fake) as client:
        script = Script(
            fake,
            [created(9), changes(9, put(8, "a"), fragment=True), C.UNAVAILABLE],
            [created(9), changes(9, put(8, "a"), fragment=True), changes(9, put(8, "b")), None],
        )
        async with aclosing(client.watch(b"k", start_revision=8)) as watching:
            assert revisions(await take(watching, 1)) == [(8, ["a", "b"])]
    assert [each.start_revision for each in script.asked] == [8, 8]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "last",
    [
        pb.WatchResponse(header=header(50), canceled=True, compact_revision=40),
        pb.WatchResponse(header=header(50), created=True, canceled=True, compact_revision=40),
    ],
)
async def test_compaction_ends_it_with_an_item(last: pb.WatchResponse) -> None:
    """A compacted past is told once, with its revision, and then the watch is over (E01)."""
    async with fake_etcd() as fake, client_of(fake) as client:
        Script(fake, [last])
        assert [each async for each in client.watch(b"k", start_revision=10)] == [
            WatchCompacted(40)
        ]
    assert fake.count("Watch/Watch") == 1


@pytest.mark.asyncio
async def test_a_store_that_went_back_ends_it() -> None:
    """A store restored from a backup never reaches the asked revision: that is told (E03)."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.answers("KV/Range", pb.RangeResponse(header=header(1000)))
        Script(fake, [created(1199), changes(1200, put(1200)), C.UNAVAILABLE], [created(1000)])
        async with aclosing(client.watch(b"k", start_revision=1200)) as watching:
            items = await take(watching, 2)
    assert items[1] == WatchRewound(1000, 1)


@pytest.mark.asyncio
async def test_a_member_that_lags_is_waited_for() -> None:
    """A member behind the asked revision is no rewound store while the cluster is ahead."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.answers("KV/Range", pb.RangeResponse(header=header(1300)))
        Script(fake, [created(1000), changes(1200, put(1200)), None])
        async with aclosing(client.watch(b"k", start_revision=1200)) as watching:
            assert revisions(await take(watching, 1)) == [(1200, ["k"])]


@pytest.mark.asyncio
async def test_another_cluster_ends_it() -> None:
    """A stream that is resumed on another cluster is not continued, whatever its revision (E03)."""
    async with fake_etcd() as fake, client_of(fake) as client:
        Script(fake, [created(5), C.UNAVAILABLE], [created(70, cluster_id=2)])
        assert [each async for each in client.watch(b"k")] == [WatchRewound(70, 2)]


@pytest.mark.asyncio
async def test_a_silent_stream_is_left_for_another_endpoint() -> None:
    """A line on which nothing comes, not even progress, is given up within the idle timeout, and
    the watch goes on elsewhere (E02)."""
    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good, **IDLE) as client:
        Script(bad, [created(5), None])
        Script(good, [created(9), changes(9, put(7)), None])
        async with aclosing(client.watch(b"k", start_revision=6)) as watching:
            began = asyncio.get_running_loop().time()
            assert revisions(await take(watching, 1)) == [(7, ["k"])]
            assert asyncio.get_running_loop().time() - began < 3


@pytest.mark.asyncio
async def test_a_stream_that_is_never_created_is_given_up() -> None:
    """A server that accepts a watch and says nothing is left too."""
    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good, **IDLE) as client:
        Script(bad, [None])
        Script(good, [created(9), changes(9, put(7)), None])
        async with aclosing(client.watch(b"k", start_revision=6)) as watching:
            assert revisions(await take(watching, 1)) == [(7, ["k"])]


@pytest.mark.asyncio
async def test_progress_keeps_a_quiet_line_and_moves_nothing() -> None:
    """Answers to progress requests make a quiet watch young; their revision is no resume point."""
    async with fake_etcd() as fake, client_of(fake, **IDLE) as client:
        script = Script(fake, [created(5)])
        async with aclosing(client.watch(b"k")) as watching:
            await until(lambda: watching.next_revision == 6)
            first = watching.last_heard_at
            await until(lambda: script.progress_asked >= 3)
            await until(lambda: watching.last_heard_at > first + 0.3)
            assert watching.next_revision == 6
    assert fake.count("Watch/Watch") == 1


@pytest.mark.asyncio
async def test_its_age_grows_while_nothing_is_heard() -> None:
    """`last_heard_at` stands still while no stream can be opened, and begins at minus infinity."""
    async with fake_etcd() as fake, client_of(fake, **IDLE) as client:
        fake.fails("Watch/Watch", C.UNAVAILABLE, "down")
        async with aclosing(client.watch(b"k")) as watching:
            await until(lambda: fake.count("Watch/Watch") >= 3)
            assert watching.last_heard_at == float("-inf")


@pytest.mark.asyncio
async def test_a_denial_is_believed_with_a_new_token() -> None:
    """etcd calls an outdated token a denial on a watch: it is renewed once, then believed."""
    denied = pb.WatchResponse(
        header=header(5), created=True, canceled=True, cancel_reason="etcdserver: permission denied"
    )
    async with fake_etcd() as fake, client_of(fake, user="u", password="p") as client:
        fake.answers("Auth/Authenticate", pb.AuthenticateResponse(token="t"))
        Script(fake, [denied], [created(5), changes(6, put(6)), None])
        async with aclosing(client.watch(b"k")) as watching:
            assert revisions(await take(watching, 1)) == [(6, ["k"])]
        assert fake.count("Auth/Authenticate") == 2
        Script(fake, [denied])
        with pytest.raises(PermissionDeniedError):
            await anext(client.watch(b"k"))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_slow_consumer_is_not_taken_for_a_dead_line() -> None:
    """While nobody takes what was read, the watch stops reading; it is not opened anew, and all
    comes in the end."""
    total = 3000
    async with fake_etcd() as fake, client_of(fake, **IDLE) as client:
        Script(fake, [created(total), *(changes(total, put(n)) for n in range(1, total + 1))])
        async with aclosing(client.watch(b"k", start_revision=1)) as watching:
            await until(lambda: watching.next_revision > 1000)
            await asyncio.sleep(1)  # several idle timeouts
            found = revisions(await take(watching, total))
    assert [revision for revision, _ in found] == list(range(1, total + 1))
    assert fake.count("Watch/Watch") == 1


@pytest.mark.asyncio
async def test_closing_ends_the_iteration() -> None:
    """Whoever waits for the next item of a watch or a client that is closed is let go."""
    async with fake_etcd() as fake, client_of(fake) as client:
        Script(fake, [created(5), None])
        watching, other = client.watch(b"k"), client.watch(b"k")
        waiting = [asyncio.create_task(anext(each, None)) for each in (watching, other)]
        await until(lambda: watching.next_revision == other.next_revision == 6)
        await watching.aclose()
        await client.aclose()
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiting) == [None, None]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_stall_of_our_own_is_not_taken_for_a_dead_line() -> None:
    """When this process stood still for longer than the idle timeout, answers may wait to be read:
    the line is asked before it is given up."""
    async with fake_etcd() as fake, client_of(fake, **IDLE) as client:
        script = Script(fake, [created(5)])
        async with aclosing(client.watch(b"k")) as watching:
            for stalls in range(3):
                await until(partial(script.was_asked_for_progress, stalls))
                time.sleep(0.6)  # noqa: ASYNC251
            assert watching.next_revision == 6
    assert fake.count("Watch/Watch") == 1
