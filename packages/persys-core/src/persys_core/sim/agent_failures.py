"""How the agents in the field class a runtime's error text.

Decided here: nothing. The table is theirs, over-broad keywords included: it is what a scheduler
reads in ``failure_reason`` and what ends their local retries. Ours is ``retry.failure``.
"""

from __future__ import annotations

__all__ = ["RETRYABLE_CLASSES", "classify_like_agents"]

_TIMEOUT = ("timeout", "timed out", "deadline exceeded")
_AUTH = ("unauthorized", "forbidden", "authentication", "credentials")
_IMAGE = ("image", "pull", "repository", "manifest", "not found")
_PORT = ("bind", "address already in use", "port", "already allocated", "userland proxy")
_NETWORK = ("connection refused", "connection reset", "network", "host")
_LATER_ROWS = (
    (("dns", "name resolution", "no such host"), "DNS_RESOLUTION_FAILED"),
    (("memory", "disk", "cpu", "quota", "limit"), "INSUFFICIENT_RESOURCES"),
    (("invalid", "malformed", "schema", "validation"), "INVALID_SPECIFICATION"),
)

RETRYABLE_CLASSES = frozenset(
    (
        "IMAGE_PULL_TIMEOUT",
        "NETWORK_TIMEOUT",
        "NETWORK_UNREACHABLE",
        "DNS_RESOLUTION_FAILED",
        "RUNTIME_ERROR",
        "RUNTIME_UNHEALTHY",
        "UNKNOWN_ERROR",
    )
)


def classify_like_agents(text: str) -> str:
    """The failure class of an error text; the first row that has a keyword in it wins."""
    text = text.lower()
    if _has(text, _IMAGE):
        return _image_class(text)
    if _has(text, _PORT):
        return "PORT_BIND_CONFLICT"
    if _has(text, _NETWORK):
        return "NETWORK_TIMEOUT" if _has(text, _TIMEOUT) else "NETWORK_UNREACHABLE"
    return next((name for words, name in _LATER_ROWS if _has(text, words)), "UNKNOWN_ERROR")


def _image_class(text: str) -> str:
    if _has(text, _TIMEOUT):
        return "IMAGE_PULL_TIMEOUT"
    return "IMAGE_PULL_AUTH_FAILED" if _has(text, _AUTH) else "INVALID_IMAGE"


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)
