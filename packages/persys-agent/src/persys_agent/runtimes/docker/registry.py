"""The registry of an image, and the credentials for it in a ``config.json`` of ``docker login``.

Decided here: how a reference is read. Credential helpers are programs and are not run.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path

from persys_agent.runtimes.docker.documents import Document, document, text
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["credentials", "full_reference", "read_config", "registry_of"]

_HUB = "docker.io"
_HUB_NAMES = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io", _HUB)


def registry_of(reference: str) -> str:
    """The registry that an image is pulled from: a first part that can only be a host."""
    host, slash, _ = reference.partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return host if is_host else _HUB


def full_reference(reference: str) -> str:
    """The reference with its registry, as credentials need it."""
    host = registry_of(reference)
    if host != _HUB or reference.startswith(f"{_HUB}/"):
        return reference
    return f"{_HUB}/{reference}" if "/" in reference else f"{_HUB}/library/{reference}"


def read_config(path: str) -> Document:
    """The file's content. Raises ``RuntimeFailedError`` that tells nothing of what is in it."""
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise RuntimeFailedError(
            FailureCode.IMAGE_PULL_AUTH_FAILED,
            f"the registry credentials in {path} cannot be read: {type(error).__name__}",
        ) from None
    return content if isinstance(content, dict) else {}


def credentials(config: Document, registry: str) -> Mapping[str, str] | None:
    """What the file has for this registry; ``None`` where it has nothing."""
    names = _HUB_NAMES if registry == _HUB else (registry, f"https://{registry}")
    for name in names:
        entry = document(config, "auths", name)
        if found := _of_entry(entry):
            return {**found, "serveraddress": name}
    return None


def _of_entry(entry: Document) -> dict[str, str] | None:
    if token := text(entry, "identitytoken"):
        return {"identitytoken": token}
    user, password = text(entry, "username"), text(entry, "password")
    if not user:
        user, password = _decoded(text(entry, "auth"))
    return {"username": user, "password": password} if user else None


def _decoded(encoded: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
