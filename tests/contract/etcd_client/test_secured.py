"""Client certificates, users and their tokens, on a real etcd that demands both."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from persys_adapters.etcd.client import (
    AuthenticationError,
    EtcdClient,
    EtcdConfig,
    PermissionDeniedError,
    TlsFiles,
    UnavailableError,
    WatchBatch,
    end_of_prefix,
)
from tests.servers.etcd import EtcdCluster, EtcdTls, make_tls, run_cluster
from tests.servers.line import line_to

QUICK = timedelta(milliseconds=100)


def files_of(tls: EtcdTls) -> TlsFiles:
    """The client's files."""
    return TlsFiles(str(tls.authority), str(tls.client_certificate), str(tls.client_key))


def config_of(cluster: EtcdCluster, user: str = "app", password: str = "app-secret") -> EtcdConfig:
    """How a user reaches a secured cluster."""
    assert cluster.tls is not None
    return EtcdConfig(cluster.endpoints, user=user, password=password, tls=files_of(cluster.tls))


@pytest.mark.asyncio
async def test_a_user_may_what_is_granted(etcd_secured: EtcdCluster) -> None:
    """Own keys are read, written and watched; others are denied, for reads, writes and watches."""
    async with EtcdClient(config_of(etcd_secured)) as client, asyncio.timeout(20):
        done = await client.put(b"/app/a", b"1")
        async with aclosing(client.watch(b"/app/a", start_revision=done.revision)) as watching:
            assert isinstance(await anext(watching), WatchBatch)
        with pytest.raises(PermissionDeniedError):
            await client.range(b"/other")
        with pytest.raises(PermissionDeniedError) as caught:
            await client.put(b"/other", b"1")
        with pytest.raises(PermissionDeniedError):
            await anext(client.watch(b"/other"))
    assert not caught.value.maybe_applied


@pytest.mark.asyncio
async def test_an_expired_token_is_renewed_for_calls_and_streams(etcd_secured: EtcdCluster) -> None:
    """Longer than a token lasts without a call: then a write, a new watch, a lease and its
    keepalive work at once, and a watch that was open all the while still sees the write."""
    async with EtcdClient(config_of(etcd_secured)) as client, asyncio.timeout(20):
        start, end = b"/app/", end_of_prefix(b"/app/")
        first = await client.put(b"/app/a", b"1")
        lease = await client.lease_grant(60)
        async with aclosing(client.watch(start, end, first.revision + 1)) as open_watch:
            await asyncio.sleep(3.2)  # a token lasts a second, and is looked for every second
            later = client.watch(start, end, first.revision)
            async with aclosing(later):
                assert isinstance(await anext(later), WatchBatch)
            await asyncio.sleep(3.2)
            await client.put(b"/app/a", b"2", lease=lease.id)
            item = await anext(open_watch)
            await client.keep_alive(lease.id)
    assert isinstance(item, WatchBatch)
    assert [event.kv.value for event in item.events] == [b"2"]


@pytest.mark.asyncio
async def test_wrong_credentials_are_told(etcd_secured: EtcdCluster) -> None:
    """A wrong password and a missing user are authentication errors that show no secret."""
    async with EtcdClient(config_of(etcd_secured, password="nonsense")) as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.range(b"/app/a")
    assert "nonsense" not in str(caught.value)
    async with EtcdClient(config_of(etcd_secured, user="", password="")) as client:
        with pytest.raises((AuthenticationError, PermissionDeniedError)):
            await client.range(b"/app/a")


@pytest.mark.asyncio
async def test_without_a_certificate_nobody_comes_in(etcd_secured: EtcdCluster) -> None:
    """A client without a certificate, or that trusts another authority, finds etcd unavailable."""
    assert etcd_secured.tls is not None
    stranger = make_tls(etcd_secured.folder / "stranger")
    for files in (TlsFiles(str(etcd_secured.tls.authority)), files_of(stranger)):
        config = EtcdConfig(etcd_secured.endpoints, tls=files, call_timeout=timedelta(seconds=0.5))
        async with EtcdClient(config) as client:
            with pytest.raises(UnavailableError):
                await client.range(b"/app/a")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("server_name", "is_right"), [("etcd.example.org", True), ("other.example.org", False)]
)
async def test_the_server_must_have_the_expected_name(
    etcd_secured: EtcdCluster, server_name: str, is_right: bool
) -> None:
    """With a server name given, the certificate must name that, whatever host is dialled."""
    config = config_of(etcd_secured)
    assert config.tls is not None
    named = evolve(config.tls, server_name=server_name)
    brief = timedelta(seconds=1.5)
    async with EtcdClient(evolve(config, tls=named, call_timeout=brief)) as client:
        if is_right:
            await client.put(b"/app/a", b"1")
            return
        with pytest.raises(UnavailableError):
            await client.put(b"/app/a", b"1")


@pytest.mark.asyncio
async def test_replaced_certificates_are_used(tmp_path: Path) -> None:
    """The authority, the server's and the client's pair are all replaced, the server is restarted:
    the client that runs goes on with the new files, its watch included."""
    tls, new = make_tls(tmp_path / "tls"), make_tls(tmp_path / "new")
    with run_cluster(tmp_path, 1, tls=tls) as cluster:
        config = EtcdConfig(cluster.endpoints, tls=files_of(tls), tls_check_interval=QUICK)
        async with EtcdClient(config) as client, asyncio.timeout(30):
            first = await client.put(b"/a", b"1")
            async with aclosing(client.watch(b"/a", start_revision=first.revision)) as watching:
                await anext(watching)
                for name in ("authority", "server_certificate", "server_key"):
                    replace(getattr(tls, name), getattr(new, name))
                for name in ("client_certificate", "client_key"):
                    replace(getattr(tls, name), getattr(new, name))
                await asyncio.to_thread(cluster.members[0].restart)
                await client.range(b"/a")
                second = await client.put(b"/a", b"2")
                item = await anext(watching)
    assert isinstance(item, WatchBatch)
    assert item.revision == second.revision


@pytest.mark.asyncio
async def test_rotation_opens_new_connections_without_failing_calls(tmp_path: Path) -> None:
    """When only the client's pair is replaced, the next call goes over a new connection, and
    neither calls under way nor the watch are lost."""
    tls = make_tls(tmp_path / "tls")
    with run_cluster(tmp_path, 1, tls=tls) as cluster:
        async with line_to(cluster.endpoints[0]) as line:
            config = EtcdConfig((line.endpoint,), tls=files_of(tls), tls_check_interval=QUICK)
            async with EtcdClient(config) as client, asyncio.timeout(30):
                await client.put(b"/a", b"1")
                assert line.connections == 1
                for path in (tls.client_certificate, tls.client_key):
                    path.write_bytes(path.read_bytes() + b"\n")
                await asyncio.sleep(0.15)
                await asyncio.gather(*(client.put(b"/a", b"%d" % n) for n in range(20)))
                assert line.connections == 2


def replace(old: Path, new: Path) -> None:
    """Put a new file in the place of an old one."""
    old.write_bytes(new.read_bytes())
