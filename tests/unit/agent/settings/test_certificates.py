"""TLS from files: what makes them usable, and that new ones are used without a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme

from persys_agent.settings import load_settings
from persys_agent.settings.certificates import (
    CertificateError,
    Stamps,
    TlsFilesOnDisk,
    TlsPaths,
    changed,
    channel_credentials,
    channel_options,
    read_material,
    server_credentials,
    tls_paths,
)
from persys_agent.settings.places import Places
from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as wire

ONE, TWO = (1, 1, 1), (2, 1, 1)


def issue(folder: Path, name: str, host: str = "127.0.0.1") -> TlsPaths:
    """A new authority and one certificate under it."""
    made = folder / name
    made.mkdir()
    authority = trustme.CA()
    pair = authority.issue_cert(host)
    authority.cert_pem.write_to_path(str(made / "ca.pem"))
    pair.cert_chain_pems[0].write_to_path(str(made / "cert.pem"))
    pair.private_key_pem.write_to_path(str(made / "key.pem"))
    return TlsPaths(*(str(made / file) for file in ("ca.pem", "cert.pem", "key.pem")))


def put(new: TlsPaths, used: TlsPaths) -> None:
    for source, target in zip(
        (new.ca, new.cert, new.key), (used.ca, used.cert, used.key), strict=True
    ):
        staged = Path(f"{target}.new")
        shutil.copyfile(source, staged)
        staged.replace(target)


def spoil(used: TlsPaths) -> None:
    Path(used.cert).write_text("half written")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((ONE, ONE, ONE), (ONE, ONE, ONE), False),
        ((ONE, ONE, ONE), (ONE, TWO, ONE), True),
        ((ONE, ONE, ONE), (ONE, None, ONE), False),
        ((None, ONE, ONE), (ONE, ONE, ONE), True),
    ],
)
def test_changed(
    before: tuple[tuple[int, int, int] | None, ...],
    now: tuple[tuple[int, int, int] | None, ...],
    expected: bool,
) -> None:
    """Any other stamp is a change; while a file is absent, nothing is."""
    assert changed(Stamps(before), Stamps(now)) is expected


def test_what_is_no_certificate_is_told_with_its_setting(tmp_path: Path) -> None:
    """Each of the three is named by key and path; a foreign key too; the key's text never."""
    ours, foreign = issue(tmp_path, "ours"), issue(tmp_path, "foreign")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("sesame")
    for paths, told in (
        (TlsPaths(str(garbage), ours.cert, ours.key), "tls_ca_path"),
        (TlsPaths(ours.ca, str(garbage), ours.key), "tls_cert_path"),
        (TlsPaths(ours.ca, ours.cert, str(garbage)), "tls_key_path"),
        (TlsPaths(ours.ca, ours.cert, foreign.key), "is not the key of the certificate"),
        (TlsPaths(ours.ca, "/absent.pem", ours.key), "No such file"),
    ):
        with pytest.raises(CertificateError, match=told) as caught:
            read_material(paths)
        assert "sesame" not in str(caught.value)


def test_the_private_key_is_not_shown(tmp_path: Path) -> None:
    """The content's text hides the key."""
    assert "PRIVATE" not in repr(read_material(issue(tmp_path, "ours")))


def test_bad_files_leave_the_good_ones_in_use(tmp_path: Path) -> None:
    """The problem is told once for each state of the files; good ones end it."""
    used, new = issue(tmp_path, "used"), issue(tmp_path, "new")
    told: list[str] = []
    files = TlsFilesOnDisk(used, on_problem=told.append)
    first = files.current()
    Path(used.key).write_text("half written")
    assert files.current() is first
    assert files.current() is first
    assert [files.problem] == told
    put(new, used)
    assert files.current() != first
    assert files.problem == ""


@pytest.mark.asyncio
async def test_a_server_serves_with_new_files_without_a_restart(tmp_path: Path) -> None:
    """A client of the new authority is let in after the files changed, one of the old is not;
    unusable files in between change nothing."""
    used, new, old = issue(tmp_path, "used"), issue(tmp_path, "new"), tmp_path / "old"
    shutil.copytree(tmp_path / "used", old)
    old_paths = TlsPaths(*(str(old / Path(each).name) for each in (used.ca, used.cert, used.key)))
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", server_credentials(TlsFilesOnDisk(used)))
    await server.start()
    assert await reaches(port, old_paths)
    assert not await reaches(port, new)
    spoil(used)
    assert await reaches(port, old_paths)
    put(new, used)
    assert await reaches(port, new)
    assert not await reaches(port, old_paths)
    await server.stop(None)


async def reaches(port: int, paths: TlsPaths) -> bool:
    """Whether a call gets as far as being told that there is no such method."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    credentials = channel_credentials(read_material(paths))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        try:
            await agent_control_stub(channel).Heartbeat(wire.HeartbeatRequest(), timeout=5)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
    return True


@pytest.mark.asyncio
async def test_the_schedulers_name_may_differ_from_the_dialled_host(tmp_path: Path) -> None:
    """tls_server_name is what the certificate has to be for (defect 24)."""
    paths = issue(tmp_path, "ours", host="scheduler.example")
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", server_credentials(TlsFilesOnDisk(paths)))
    await server.start()
    places = Places.of(is_root=True, home=tmp_path, working=tmp_path)
    named = load_settings({"PERSYS_TLS_SERVER_NAME": "scheduler.example"}, places=places)
    plain = load_settings({}, places=places)
    assert channel_options(plain) == ()
    for settings, expected in (
        (named, grpc.StatusCode.UNIMPLEMENTED),
        (plain, grpc.StatusCode.UNAVAILABLE),
    ):
        channel = grpc.aio.secure_channel(
            f"127.0.0.1:{port}",
            channel_credentials(read_material(paths)),
            (*channel_options(settings), ("grpc.use_local_subchannel_pool", 1)),
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent_control_stub(channel).Heartbeat(wire.HeartbeatRequest(), timeout=5)
        assert caught.value.code() is expected
        await channel.close()
    await server.stop(None)


def test_the_settings_name_the_files(tmp_path: Path) -> None:
    """Each path comes from its own setting."""
    places = Places.of(is_root=True, home=tmp_path, working=tmp_path)
    settings = load_settings(
        {"PERSYS_TLS_CA": "/a", "PERSYS_TLS_CERT": "/b", "PERSYS_TLS_KEY": "/c"}, places=places
    )
    assert tls_paths(settings) == TlsPaths("/a", "/b", "/c")
