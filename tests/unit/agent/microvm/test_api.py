"""Firecracker's API, and the stand-in that plays it in tests."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.runtimes.microvm.api import Action, FirecrackerApi, GuestState
from persys_agent.runtimes.port import RuntimeFailedError, RuntimeUnavailableError
from tests.servers.firecracker import install

SECOND = timedelta(seconds=1)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="fc-"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def firecracker(folder: Path) -> AsyncIterator[FirecrackerApi]:
    path = folder / "api.sock"
    process = await asyncio.create_subprocess_exec(
        str(install(folder)), "--api-sock", str(path), "--id", "i-1",
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    api = FirecrackerApi(path, timedelta(seconds=10))
    try:
        async with asyncio.timeout(10):
            # The socket is there before anybody listens.
            while not await _answers(api):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.01)
        yield api
    finally:
        process.kill()
        await process.wait()


async def _answers(api: FirecrackerApi) -> bool:
    try:
        await api.info()
    except RuntimeUnavailableError:
        return False
    return True


async def prepare(api: FirecrackerApi, folder: Path) -> None:
    (folder / "vmlinux").touch()
    (folder / "initrd").touch()
    source = {"kernel_image_path": f"{folder}/vmlinux", "initrd_path": f"{folder}/initrd"}
    await api.put("/boot-source", source)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_states_are_those_of_the_api(folder: Path) -> None:
    """Not started, running, and a paused guest that goes on."""
    async with firecracker(folder) as api:
        info = await api.info()
        assert (info.id, info.state) == ("i-1", GuestState.NOT_STARTED)
        await prepare(api, folder)
        await api.act(Action.START)
        assert (await api.info()).state is GuestState.RUNNING
        await api._request("PATCH", "/vm", {"state": "Paused"})
        assert (await api.info()).state is GuestState.PAUSED
        await api.resume()
        assert (await api.info()).state is GuestState.RUNNING


@pytest.mark.slow
@pytest.mark.asyncio
async def test_faults_are_answers(folder: Path) -> None:
    """What Firecracker refuses comes back in its words; the stand-in refuses what it would."""
    async with firecracker(folder) as api:
        with pytest.raises(RuntimeFailedError, match="without kernel configuration"):
            await api.act(Action.START)
        with pytest.raises(RuntimeFailedError, match="before starting"):
            await api.act(Action.CTRL_ALT_DEL)
        with pytest.raises(RuntimeFailedError, match="missing field `mem_size_mib`"):
            await api.put("/machine-config", {"vcpu_count": 1})
        with pytest.raises(RuntimeFailedError, match="unknown field `memory`"):
            await api.put("/machine-config", {"vcpu_count": 1, "mem_size_mib": 1, "memory": 1})
        with pytest.raises(RuntimeFailedError, match="invalid type of field `vcpu_count`"):
            await api.put("/machine-config", {"vcpu_count": "1", "mem_size_mib": 1})
        body = {"iface_id": "eth0", "host_dev_name": "tap0"}
        with pytest.raises(RuntimeFailedError, match="The id from the path"):
            await api.put("/network-interfaces/eth1", body)
        await prepare(api, folder)
        await api.act(Action.START)
        with pytest.raises(RuntimeFailedError, match="after starting"):
            await api.put("/machine-config", {"vcpu_count": 1, "mem_size_mib": 1})


@pytest.mark.asyncio
async def test_no_socket_is_no_answer(folder: Path) -> None:
    """Nobody there is not a refusal."""
    with pytest.raises(RuntimeUnavailableError):
        await FirecrackerApi(folder / "none.sock", SECOND).info()


@pytest.mark.asyncio
async def test_silence_is_no_answer(folder: Path) -> None:
    """A socket that nobody serves is given up in time."""
    path = folder / "hung.sock"
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen()
        with pytest.raises(RuntimeUnavailableError):
            await FirecrackerApi(path, timedelta(seconds=0.2)).info()


@pytest.mark.asyncio
async def test_others_are_no_firecracker(folder: Path) -> None:
    """A server that answers something else is no answer either."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        done.set()

    path = folder / "other.sock"
    async with await asyncio.start_unix_server(serve, path):
        with pytest.raises(RuntimeUnavailableError, match="does not speak"):
            await FirecrackerApi(path, SECOND).info()
        await done.wait()
