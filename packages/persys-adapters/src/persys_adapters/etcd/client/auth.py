"""Tokens: got with user and password when first needed, and anew when etcd stops knowing one.

Decided here: one request for a token at a time, whoever asks; one renewal per token, so that many
calls that fail together do not each ask for one. A cluster that has authentication switched off is
spoken to without a token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from persys_adapters.etcd.client.errors import PreconditionError
from persys_adapters.etcd.client.wire import Answer, Method, Request

__all__ = ["Metadata", "Tokens"]

Metadata: TypeAlias = tuple[tuple[str, str], ...]

_log = logging.getLogger(__name__)
_LEADER: Metadata = (("hasleader", "true"),)
_SWITCHED_OFF = "authentication is not enabled"


class Tokens:
    """The present token; ``number`` grows with each that was given up."""

    def __init__(self, authenticate: Callable[[float], Awaitable[str]] | None) -> None:
        """``authenticate`` gets a token within so many seconds; without it there are no tokens."""
        self._authenticate = authenticate
        self._known = authenticate is None
        self._asking = asyncio.Lock()
        self._plain: Metadata = ()
        self._with_leader = _LEADER
        self.number = 0

    async def metadata(self, method: Method[Request, Answer], timeout: float) -> Metadata:
        """What goes along with a call of ``method``; may ask for a token, and raise `EtcdError`."""
        if not self._known and method.authenticated:
            async with self._asking:
                if not self._known:
                    await self._ask(timeout)
        if not method.authenticated:
            return ()
        return self._with_leader if method.wants_leader else self._plain

    def renew(self, number: int) -> bool:
        """Token ``number`` is not valid: ask anew before the next call. Whether that can help."""
        if self._authenticate is None:
            return False
        if number == self.number:
            self.number += 1
            self._known = False
        return True

    async def _ask(self, timeout: float) -> None:
        assert self._authenticate is not None
        try:
            token = await self._authenticate(timeout)
        except PreconditionError as error:
            if _SWITCHED_OFF not in error.details:
                raise
            _log.warning("a user is given, but etcd has authentication switched off")
            self._plain, self._with_leader = (), _LEADER
        else:
            self._plain = (("token", token),)
            self._with_leader = (*_LEADER, *self._plain)
        self._known = True
