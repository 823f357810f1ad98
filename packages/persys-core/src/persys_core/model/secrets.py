"""Which values of a spec are secrets, and how a text is cleaned of them.

Decided here: the name pattern and the mask. Secrets are stored as given, since the agent needs
them; they never reach views, events, logs, spans, metrics or error texts (decisions, values).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["MASK", "is_secret_name", "masked", "scrubbed", "secret_env_values"]

MASK = "***"
_MIN_SECRET_LENGTH = 3
_SECRET_NAME = re.compile(
    r"(pass(word|wd|phrase)?|pwd|secret|token|credential|private_?key|api_?key|access_?key|auth)",
    re.IGNORECASE,
)
# The look-behind keeps both patterns linear on long runs of letters (base64 values).
_SCHEME = r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://"
_URL_CREDENTIALS = re.compile(rf"(?P<scheme>{_SCHEME})[^/\s@]*@", re.IGNORECASE)
_URL_PASSWORD = re.compile(rf"{_SCHEME}[^/\s:@]*:(?P<password>[^/\s@]+)@", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret (``DB_PASSWORD``, ``API_KEY`` …)."""
    return _SECRET_NAME.search(name) is not None


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """``values`` with every secret replaced by the mask and URL credentials removed."""
    return {
        name: MASK if is_secret_name(name) else scrubbed(value, ())
        for name, value in values.items()
    }


def secret_env_values(env: Mapping[str, str]) -> frozenset[str]:
    """The values in ``env`` that must not appear in any text: secrets and URL passwords.

    Values shorter than three characters are left out: hiding every ``1`` of a text helps no one.
    """
    by_name = {value for name, value in env.items() if is_secret_name(name)}
    in_urls = {found for value in env.values() for found in _URL_PASSWORD.findall(value)}
    return frozenset(value for value in by_name | in_urls if len(value) >= _MIN_SECRET_LENGTH)


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the given secret values and without credentials inside URLs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    # Most texts have no URL in them, and this is called for every report of every listing.
    return _URL_CREDENTIALS.sub(rf"\g<scheme>{MASK}@", text) if "@" in text else text
