from __future__ import annotations

import pytest

from persys_core.settings.nearest import nearest

KNOWN = (
    "PERSYS_GRPC_PORT", "PERSYS_NODE_ID", "PERSYS_TLS_CA", "PERSYS_TLS_CERT", "PERSYS_TLS_KEY",
    "PERSYS_VERSION", "PERSYS_CLUSTER_ID", "PERSYS_LOG_LEVEL", "REDIS_PASSWORD",
)  # fmt: skip
PREFIXES = ("PERSYS_", "REDIS_")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PERSYS_GRPC_PROT", "PERSYS_GRPC_PORT"),
        ("PERSYS_NODEID", "PERSYS_NODE_ID"),
        ("PERSYS_LOGLEVEL", "PERSYS_LOG_LEVEL"),
        ("PERSYS_TLS_CRET", "PERSYS_TLS_CERT"),
        ("REDIS_PASWORD", "REDIS_PASSWORD"),
        ("PERSYS_CLUSTER", "PERSYS_CLUSTER_ID"),
    ],
)
def test_a_slip_gets_the_name_that_was_meant(name: str, meant: str) -> None:
    """Letters that are swapped, doubled or left out, or the last word."""
    assert nearest(name, KNOWN, PREFIXES) == meant


@pytest.mark.parametrize(
    "name",
    [
        "PERSYS_FOO",
        "PERSYS_X",
        "PERSYS_ID",
        "PERSYS_USER",
        "PERSYS_MODE",
        "PERSYS_TLS",
        "PERSYS_PASSWORD",
    ],
)
def test_what_is_near_to_nothing_gets_no_suggestion(name: str) -> None:
    """That all begin alike makes none of them near."""
    assert nearest(name, KNOWN, PREFIXES) == ""
