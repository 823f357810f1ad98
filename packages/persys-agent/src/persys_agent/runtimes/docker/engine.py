"""The Engine's API, as much of it as the runtimes need, through aiodocker.

Decided here: which failure is an answer (``EngineError``, with the HTTP status) and which is
silence (``RuntimeUnavailableError``). The client is made with the first call, since it needs the
running event loop, and connects anew by itself after the daemon was away. Streams have connections
of their own, so that many followers of logs cannot hold up a question.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TypeVar, cast

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.execs import Exec
from aiodocker.types import JSONObject
from yarl import URL

from persys_agent.runtimes.docker.documents import Document, items, text, texts
from persys_agent.runtimes.port import RuntimeUnavailableError
from persys_core.model.errors import PersysError

__all__ = ["NOT_FOUND", "Engine", "EngineError"]

BAD_REQUEST = 400
NOT_FOUND = 404
CONFLICT = 409
_NO_CONNECTION = 900
"""The status that aiodocker gives where there was no answer at all."""
_SERVER_ERRORS = 500
_CHUNK_BYTES = 64 * 1024
_AROUND_AN_END = 1.0
"""How long before an end its event is looked for, in seconds."""

Result = TypeVar("Result")


class EngineError(PersysError):
    """The Engine refused; ``status`` is that of HTTP, 0 for an error within a stream."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """One Docker daemon. Every method raises ``EngineError`` and ``RuntimeUnavailableError``.

    Size: a method for each call of the API that is used, and nothing else.
    """

    def __init__(self, endpoint: str, call_timeout: timedelta = timedelta(seconds=30)) -> None:
        self.endpoint = endpoint
        self._seconds = call_timeout.total_seconds()
        self._calls: Docker | None = None
        self._streams: Docker | None = None

    async def aclose(self) -> None:
        """Let go of every connection; a later call opens new ones."""
        clients, self._calls, self._streams = (self._calls, self._streams), None, None
        for each in clients:
            if each is not None:
                await each.close()

    async def version(self) -> Document:
        """The daemon's versions."""
        return await self._asked(lambda docker: docker.version())

    async def info(self) -> Document:
        """What the daemon is and can do."""

        async def ask(docker: Docker) -> Document:
            return dict(await docker.system.info())

        return await self._asked(ask)

    async def show(self, container: str) -> Document | None:
        """A container by name or id; ``None`` where the Engine said that it has none."""

        async def ask(docker: Docker) -> Document:
            return await docker.containers.container(container).show()

        return await self._found(ask)

    async def named(self, name: str) -> Document | None:
        """The container of exactly this name. The Engine also takes the beginning of an id for a
        name, so that "db" finds any container whose id begins so, or several."""
        try:
            shown = await self.show(name)
        except EngineError as error:
            if error.status == BAD_REQUEST:  # the beginning of several ids, so nothing's name
                return None
            raise
        return shown if shown is not None and text(shown, "Name") == f"/{name}" else None

    async def containers(
        self, labels: Mapping[str, str], *, running: bool = False
    ) -> Sequence[Document]:
        """Summaries of all containers with these labels; an empty value is any value."""
        filters: dict[str, list[str]] = {
            "label": [f"{name}={value}" if value else name for name, value in labels.items()]
        }
        if running:
            filters["status"] = ["running"]

        async def ask(docker: Docker) -> Sequence[Document]:
            found = await docker.containers.list(all=1, filters=json.dumps(filters))
            return [each._container for each in found]

        return await self._read(ask)

    async def create(self, name: str, config: Document) -> str:
        """Create a container; its id."""

        async def ask(docker: Docker) -> str:
            return (await docker.containers.create(cast("JSONObject", config), name=name)).id

        return await self._asked(ask)

    async def start(self, container_id: str) -> None:
        """Start it; no error where it runs."""
        await self._asked(lambda docker: docker.containers.container(container_id).start())

    async def unpause(self, container_id: str) -> None:
        """Let what was paused go on."""
        await self._asked(lambda docker: docker.containers.container(container_id).unpause())

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop it, by force after so many seconds; no error where it does not run."""
        await self._asked(
            lambda docker: docker.containers.container(container_id).stop(t=seconds),
            self._seconds + seconds,
        )

    async def delete(self, container_id: str, *, with_volumes: bool = False) -> None:
        """Remove it by force; no error where it is gone."""

        async def ask(docker: Docker) -> bool:
            await docker.containers.container(container_id).delete(force=True, v=with_volumes)
            return True

        await self._found(ask)

    async def has_image(self, reference: str) -> bool:
        """Whether the image is on this host."""
        return await self._found(lambda docker: docker.images.inspect(reference)) is not None

    async def pull(self, reference: str, auth: Mapping[str, str] | None) -> None:
        """Pull the image, however long it takes; errors within the stream count."""

        async def ask(docker: Docker) -> None:
            progress = docker.images.pull(reference, auth=dict(auth) if auth else None, stream=True)
            async for _ in progress:
                pass

        async with self.translated():
            await ask(self._streaming())

    async def stats(self, container_id: str) -> Document | None:
        """One sample of what it uses; ``None`` where it is gone."""

        async def ask(docker: Docker) -> Document:
            query = {"stream": "0", "one-shot": "1"}
            async with _get(docker, f"containers/{container_id}/stats", query) as answer:
                found = await answer.json()
                return found if isinstance(found, dict) else {}

        return await self._found(ask)

    async def logs(
        self,
        container_id: str,
        tail: int | None,
        *,
        follow: bool,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """What it wrote, with times, in the framing of the Engine; ``follow``: until it ends."""
        query = {"stdout": "1", "stderr": "1", "timestamps": "1"}
        query["tail"] = "all" if tail is None else str(max(0, tail))
        if since is not None:
            query["since"] = f"{since.timestamp():.6f}"
        if until is not None:
            query["until"] = f"{until.timestamp():.6f}"
        async with self.translated():
            docker = self._streaming()
            await self._negotiated(docker)
            path = f"containers/{container_id}/logs"
            async with _get(docker, path, query | {"follow": "1" if follow else "0"}) as answer:
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk

    async def last_exit(
        self, container_id: str, ended_at: datetime, started_at: datetime
    ) -> int | None:
        """The code of the end that was then, before the present start, from the Engine's memory of
        events, which is short; ``None`` where that does not have it. Never raises."""
        query = {
            "since": f"{ended_at.timestamp() - _AROUND_AN_END:.6f}",
            "until": f"{started_at.timestamp():.6f}",
            "filters": json.dumps({"container": [container_id], "event": ["die"]}),
        }

        async def ask(docker: Docker) -> int | None:
            code = None
            async with _get(docker, "events", query) as answer:
                async for line in answer.content:
                    told = texts(json.loads(line), "Actor", "Attributes").get("exitCode", "")
                    code = int(told) if told.isdigit() else code
            return code

        try:
            return await self._asked(ask)
        except (EngineError, RuntimeUnavailableError):
            return None

    async def prepare_exec(self, container_id: str, command: Sequence[str], tty: bool) -> Exec:
        """A command to run inside, not begun yet."""
        return await self._asked(
            lambda docker: docker.containers.container(container_id).exec(
                list(command), stdin=True, tty=tty
            ),
            client=self._streaming(),
        )

    async def exec_state(self, prepared: Exec) -> Document:
        """How a command is doing: ``Running``, ``ExitCode``, ``Pid``."""
        return await self._asked(lambda _: prepared.inspect())

    async def volumes(self, labels: Mapping[str, str]) -> Sequence[str]:
        """The names of the volumes with these labels."""
        return [str(each.get("Name", "")) for each in await self.shown_volumes(labels)]

    async def shown_volumes(self, labels: Mapping[str, str]) -> Sequence[Document]:
        """The volumes with these labels, as the Engine shows them."""
        wanted = [f"{name}={value}" for name, value in labels.items()]

        async def ask(docker: Docker) -> Sequence[Document]:
            found: Document = await docker.volumes.list(  # type: ignore[no-untyped-call]
                filters={"label": wanted}
            )
            return items(found, "Volumes")

        return await self._read(ask)

    async def delete_volume(self, name: str) -> None:
        """Remove a volume with its data; no error where it is gone."""

        async def ask(docker: Docker) -> bool:
            volume = await docker.volumes.get(name)  # type: ignore[no-untyped-call]
            await volume.delete()
            return True

        await self._found(ask)

    async def delete_network(self, name: str) -> None:
        """Remove a network; no error where it is gone."""

        async def ask(docker: Docker) -> bool:
            return await (await docker.networks.get(name)).delete()

        await self._found(ask)

    async def networks(self, labels: Mapping[str, str]) -> Sequence[str]:
        """The names of the networks with these labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]

        async def ask(docker: Docker) -> Sequence[str]:
            found = await docker.networks.list(filters={"label": wanted})
            return [str(each.get("Name", "")) for each in found]

        return await self._read(ask)

    async def _asked(
        self,
        ask: Callable[[Docker], Awaitable[Result]],
        seconds: float | None = None,
        client: Docker | None = None,
    ) -> Result:
        async with self.translated(), asyncio.timeout(seconds or self._seconds):
            docker = client or self._calling()
            await self._negotiated(docker)
            return await ask(docker)

    async def _found(self, ask: Callable[[Docker], Awaitable[Result]]) -> Result | None:
        """The answer, or ``None`` where the Engine has no such thing."""
        try:
            return await self._read(ask)
        except EngineError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def _read(self, ask: Callable[[Docker], Awaitable[Result]]) -> Result:
        """The answer to a question; an Engine that cannot tell what it has is unavailable."""
        try:
            return await self._asked(ask)
        except EngineError as error:
            if error.status >= _SERVER_ERRORS:
                raise RuntimeUnavailableError(
                    f"the Docker daemon cannot answer: {error} (status {error.status})"
                ) from error
            raise

    def _calling(self) -> Docker:
        if self._calls is None:
            self._calls = Docker(url=self.endpoint)
        return self._calls

    def _streaming(self) -> Docker:
        if self._streams is None:
            self._streams = Docker(url=self.endpoint)
        return self._streams

    async def _negotiated(self, docker: Docker) -> None:
        """Every client speaks the version of the daemon from its second call on."""
        if docker.api_version == "auto":
            async with asyncio.timeout(self._seconds):
                await docker.version()

    @asynccontextmanager
    async def translated(self) -> AsyncIterator[None]:
        """Errors of the client within the block in our words."""
        try:
            yield
        except DockerError as error:
            if error.status >= _NO_CONNECTION:
                raise self._silent(error) from error
            raise EngineError(error.status, error.message) from error
        except aiohttp.ClientResponseError as error:
            raise EngineError(error.status, error.message) from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._silent(error) from error

    def _silent(self, error: BaseException) -> RuntimeUnavailableError:
        cause = error.__cause__ or error.__context__ or error
        known = cause.strerror if isinstance(cause, OSError) else None
        reason = known or str(error) or type(error).__name__
        return RuntimeUnavailableError(
            f"the Docker daemon at {self.endpoint} does not answer: {reason}"
        )


@asynccontextmanager
async def _get(
    docker: Docker, path: str, query: Mapping[str, str]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """A question that aiodocker has no call for, over its session."""
    url = URL(f"{docker.docker_host}/{docker.api_version}/{path}")
    unlimited = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with docker.session.get(url, params=dict(query), timeout=unlimited) as answer:
        if answer.status >= 400:
            try:
                message = str((await answer.json()).get("message", ""))
            except (ValueError, aiohttp.ContentTypeError):
                message = await answer.text()
            raise DockerError(answer.status, message)
        yield answer
