"""Who may call this agent: told by the names in a caller's certificate.

Decided here: schedulers may do everything, operators may look, read output and run commands, and
nobody else may do anything ((agent defect 41: any certificate of the authority did for everything).
Without TLS nobody can be told apart, so nobody is refused; a call that this table does not know is
the schedulers'.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
import grpc.aio
import structlog
from attrs import frozen

__all__ = ["CallerPolicy", "CallerRules", "refusal_of"]

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = Any
"""``grpc.RpcMethodHandler``, whose stubs know blocking servers only."""

_LOOKING = frozenset(
    "GetWorkloadStatus ListWorkloads HealthCheck ListActions StreamLogs Exec".split()
)
_NAMES = ("x509_common_name", "x509_subject_alternative_name")
_SHOWN = 5


@frozen
class CallerPolicy:
    """Names of certificates by role. ``enforces`` false only tells what would be refused."""

    schedulers: frozenset[str] = frozenset({"persys-scheduler"})
    operators: frozenset[str] = frozenset({"persysctl", "persys-gateway"})
    enforces: bool = True


def refusal_of(method: str, names: Iterable[str], policy: CallerPolicy) -> str:
    """Why a caller of these names may not call ``method`` (``/package.Service/Name``); empty where
    it may."""
    called, own = method.rpartition("/")[2], set(names)
    if own & policy.schedulers or (called in _LOOKING and own & policy.operators):
        return ""
    shown = ", ".join(sorted(own)[:_SHOWN]) or "none"
    roles = (
        "tls_scheduler_names or tls_operator_names"
        if called in _LOOKING
        else ("tls_scheduler_names")
    )
    return (
        f"the certificate's names ({shown}) do not allow {called}; the agent's settings say which"
        f" do: {roles}"
    )


class CallerRules(grpc.aio.ServerInterceptor):
    """Refuses with PERMISSION_DENIED before a call is served."""

    def __init__(self, policy: CallerPolicy) -> None:
        self._policy = policy

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Put the check in front of the call's handler."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        return self._guarded(handler, handler_call_details.method)

    async def _check(self, context: Context, method: str) -> None:
        found = context.auth_context()
        if b"ssl" not in found.get("transport_security_type", ()):
            return
        refusal = refusal_of(method, _names(found), self._policy)
        if not refusal:
            return
        structlog.get_logger().warning(
            "caller refused" if self._policy.enforces else "caller would be refused",
            peer=context.peer(),
            reason=refusal,
        )
        if self._policy.enforces:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)

    def _guarded(self, handler: Handler, method: str) -> Handler:
        async def unary(request: Any, context: Context) -> Any:
            await self._check(context, method)
            return await handler.unary_unary(request, context)

        async def streaming(request: Any, context: Context) -> AsyncIterator[Any]:
            await self._check(context, method)
            served = handler.stream_stream if handler.request_streaming else handler.unary_stream
            async with aclosing(served(request, context)) as answers:
                async for each in answers:
                    yield each

        make: Any = _MAKERS[bool(handler.request_streaming), bool(handler.response_streaming)]
        body = streaming if handler.response_streaming else unary
        return make(body, handler.request_deserializer, handler.response_serializer)


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _names(found: Mapping[str, Iterable[bytes]]) -> Iterable[str]:
    for key in _NAMES:
        for each in found.get(key, ()):
            yield each.decode(errors="replace")
