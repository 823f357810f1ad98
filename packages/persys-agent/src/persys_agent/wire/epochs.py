"""The epoch that a scheduler's call carries: of the leadership that it acts under."""

from __future__ import annotations

from typing import Any

import grpc.aio

__all__ = ["EPOCH_METADATA", "epoch_of"]

EPOCH_METADATA = "persys-epoch"


def epoch_of(context: grpc.aio.ServicerContext[Any, Any]) -> int:
    """The epoch; 0 for a caller that sent none, or nothing that is one."""
    metadata = dict(context.invocation_metadata() or ())
    text = metadata.get(EPOCH_METADATA, "0")
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
