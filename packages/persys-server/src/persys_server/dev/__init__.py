"""``persys-server dev``: a whole cluster on one machine, and a short story about it.

Decided here: what the demonstration shows and in which order. It drives the cluster through the
same gRPC API that everyone else uses; nothing of the server knows that it exists.
"""

from __future__ import annotations

from persys_server.dev.command import main

__all__ = ["main"]
