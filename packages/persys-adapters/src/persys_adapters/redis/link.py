"""RedisLink: commands over connections of its own. The one file that knows redis-py.

Decided here: how a connection is made (address, Sentinel, TLS, user), how long an answer may take,
and which trouble an error is. Nothing is tried twice here: whether a command may be repeated
depends on what it does.

A link that waits for news has its own connection, whose patience is longer than the wait: a wait
that ends without news must not look like a broken connection, and readers must not use up the
connections of writers (field report K02).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import redis.exceptions as errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from persys_adapters.redis.address import DEFAULT_PORT, Address, RedisTarget
from persys_adapters.redis.trouble import RedisTroubleError, Trouble
from persys_core.model.secrets import scrubbed

__all__ = ["Command", "RedisLink", "Word"]

Word: TypeAlias = str | bytes | int
Command: TypeAlias = Sequence[Word]

PATIENCE = timedelta(seconds=2)
"""How long an answer may take, and a connection to be made."""
MARGIN = timedelta(seconds=5)
"""How much longer the patience of a waiting link is than its wait."""

_TEXT_LENGTH = 300
_SIGNS = (
    ("NOAUTH", Trouble.DENIED),
    ("WRONGPASS", Trouble.DENIED),
    ("OOM ", Trouble.FULL),
    ("MISCONF", Trouble.UNSAVED),
    ("DB index", Trouble.NO_DATABASE),
    ("SELECT is not allowed in cluster mode", Trouble.NO_DATABASE),
)
"""What redis-py has no exception for; the texts are the server's."""
_PIPELINE_PREFIX = "of pipeline caused error: "


class RedisLink:
    """Commands to one Redis. ``wait`` is how long a command may block on purpose."""

    def __init__(
        self, target: RedisTarget, *, connections: int = 1, wait: timedelta = timedelta()
    ) -> None:
        patience = wait + MARGIN if wait else PATIENCE
        self._secrets = {target.password, target.sentinel_password} - {""}
        # Both the connection, whose host may have to be asked for, and the answer take their time.
        self._limit = (patience + 3 * PATIENCE).total_seconds()
        self._slots = asyncio.Semaphore(connections)
        self._sentinel = _sentinel(target) if target.sentinels else None
        options = _options(target, patience)
        if self._sentinel is not None:
            self._redis: Redis = self._sentinel.master_for(target.master_name, **options)
        else:
            address = target.address or Address("localhost", DEFAULT_PORT)
            self._redis = Redis(host=address.host, port=address.port, **options)

    async def call(self, *words: Word) -> object:
        """The answer to one command; raises ``RedisTroubleError``."""
        return await self._guarded(self._command(words))

    async def together(self, commands: Sequence[Command]) -> list[object]:
        """All of ``commands`` in one transaction, or none of them; raises ``RedisTroubleError``.

        A command that failed by itself (its key is of another kind) has the error in its place.
        """
        answers = await self._guarded(self._transaction(commands))
        if not isinstance(answers, list):
            raise RedisTroubleError(Trouble.REFUSED, "no list as the answer to a transaction")
        return [
            self._translated(answer) if isinstance(answer, Exception) else answer
            for answer in answers
        ]

    async def aclose(self) -> None:
        """Close every connection."""
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()
        if self._sentinel is not None:
            for each in self._sentinel.sentinels:
                await each.aclose()

    async def _command(self, words: Command) -> object:
        answer: object = await self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
        return answer

    async def _transaction(self, commands: Sequence[Command]) -> object:
        async with self._redis.pipeline(transaction=True) as pipeline:
            for words in commands:
                pipeline.execute_command(*words)
            return await pipeline.execute(raise_on_error=False)

    async def _guarded(self, doing: Any) -> object:
        """The result of ``doing`` in its time. Its turn is waited for in that time, too."""
        try:
            async with asyncio.timeout(self._limit), self._slots:
                try:
                    result: object = await doing
                except errors.ReadOnlyError:
                    # Its name may lead to the new master by now.
                    await self._redis.connection_pool.disconnect()
                    raise
                return result
        except (errors.RedisError, OSError, ValueError) as error:
            raise self._translated(error) from error
        finally:
            # Where it never had its turn.
            doing.close()

    def _translated(self, error: Exception) -> RedisTroubleError:
        text = str(error) or type(error).__name__
        # redis-py quotes the whole command, with what a user's event says.
        text = text.rpartition(_PIPELINE_PREFIX)[2]
        return RedisTroubleError(_trouble(error), scrubbed(text, self._secrets)[:_TEXT_LENGTH])


def _trouble(error: Exception) -> Trouble:
    match error:
        case errors.OutOfMemoryError():
            return Trouble.FULL
        case errors.TimeoutError() | TimeoutError():
            return Trouble.TIMEOUT
        case errors.AuthenticationError() | errors.AuthorizationError():
            return Trouble.DENIED
        case errors.NoPermissionError():
            return Trouble.DENIED
        case errors.ConnectionError() | errors.ReadOnlyError() | OSError():
            return Trouble.UNREACHABLE
        case _:
            return _trouble_of_text(str(error))


def _trouble_of_text(text: str) -> Trouble:
    found = (trouble for sign, trouble in _SIGNS if sign in text)
    return next(found, Trouble.REFUSED)


def _options(target: RedisTarget, patience: timedelta) -> Mapping[str, Any]:
    return {
        **_connection(patience),
        **_tls(target),
        "db": target.db,
        "username": target.username or None,
        "password": target.password or None,
    }


def _connection(patience: timedelta) -> Mapping[str, Any]:
    return {
        "socket_timeout": patience.total_seconds(),
        "socket_connect_timeout": PATIENCE.total_seconds(),
        "socket_keepalive": True,
        # What redis-py repeats by itself would be written twice.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _tls(target: RedisTarget) -> Mapping[str, Any]:
    if target.tls is None:
        return {}
    return {
        "ssl": True,
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        "ssl_ca_certs": target.tls.ca_file or None,
        "ssl_certfile": target.tls.cert_file or None,
        "ssl_keyfile": target.tls.key_file or None,
    }


def _sentinel(target: RedisTarget) -> Sentinel:
    options = {
        **_connection(PATIENCE / 2),
        **_tls(target),
        "username": target.sentinel_username or None,
        "password": target.sentinel_password or None,
    }
    places = [(each.host, each.port) for each in target.sentinels]
    return Sentinel(places, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
