"""Servers that a test needs and a machine may lack: absent is a skip, or a failure where required.

``PERSYS_REQUIRE`` is a comma list of what must be there (``redis,etcd``).
"""

from __future__ import annotations

import os

import pytest

__all__ = ["absent"]


def absent(name: str, reason: str) -> pytest.MarkDecorator | None:
    """Skip for ``reason``; raises where ``name`` is required."""
    required = {each.strip() for each in os.environ.get("PERSYS_REQUIRE", "").split(",")}
    if name in required:
        pytest.fail(f"PERSYS_REQUIRE names {name}, but {reason}", pytrace=False)
    pytest.skip(reason)
