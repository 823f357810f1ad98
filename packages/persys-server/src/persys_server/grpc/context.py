"""What an RPC's context tells, under one name per thing."""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc.aio

__all__ = ["Context", "seconds_left"]

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

_NEVER = 10.0 * 365 * 24 * 3600


def seconds_left(context: Context) -> float | None:
    """Until the caller's deadline; ``None`` where it set none.

    gRPC tells "no deadline" as ``None`` or as hundreds of years, depending on its version.
    """
    left: float | None = context.time_remaining()
    return None if left is None or left > _NEVER else left
