"""Where traces are sent: what the OTEL_ variables may hold and what they mean together.

Decided here (ADR 15): a scheme decides about TLS, and OTEL_EXPORTER_OTLP_INSECURE only where there
is none (reference defect F9); port 4317 means gRPC where no protocol is named, anything else
OTLP over HTTP; /v1/traces is added to an address that does not end in it; what stands before an @
becomes an Authorization header, so that no address holds a password.
"""

from __future__ import annotations

import base64
import re
from enum import StrEnum
from urllib.parse import SplitResult, unquote, urlsplit

from attrs import field, frozen

__all__ = [
    "OtlpEndpoint",
    "OtlpProtocol",
    "Sampler",
    "chosen_protocol",
    "otlp_endpoint",
    "pairs",
    "ratio",
]

_ACCEPTED = (
    "host:port, http://host:port or https://host:port (port 4318 for OTLP over HTTP, 4317 for"
    " gRPC), with a path only over HTTP, and neither ? nor #"
)
_TRACES_PATH = "/v1/traces"
_GRPC_PORT, _HTTP_PORT = 4317, 4318
_SCHEME_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._-]+\Z|\[[0-9A-Fa-f:.]+\]\Z")


class OtlpProtocol(StrEnum):
    """How spans travel. ``AUTO``: as the port says."""

    AUTO = ""
    HTTP = "http/protobuf"
    GRPC = "grpc"


class Sampler(StrEnum):
    """Which traces are kept; the words of OpenTelemetry."""

    PARENT_ON = "parentbased_always_on"
    PARENT_OFF = "parentbased_always_off"
    PARENT_RATIO = "parentbased_traceidratio"
    ALWAYS_ON = "always_on"
    ALWAYS_OFF = "always_off"
    RATIO = "traceidratio"


@frozen
class OtlpEndpoint:
    """A collector's address. ``scheme`` is empty where none was given, ``port`` is 0 then too."""

    scheme: str
    host: str
    port: int
    path: str = ""
    authorization: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def is_secure(self, *, insecure: bool) -> bool:
        """Whether TLS is spoken."""
        return self.scheme == "https" if self.scheme else not insecure

    def port_for(self, protocol: OtlpProtocol) -> int:
        """The port, which may be left out."""
        if self.port:
            return self.port
        if self.scheme:
            return _SCHEME_PORTS[self.scheme]
        return _GRPC_PORT if protocol is OtlpProtocol.GRPC else _HTTP_PORT

    def url(self, *, secure: bool) -> str:
        """Where spans are posted to over HTTP."""
        path = self.path if self.path.endswith(_TRACES_PATH) else self.path + _TRACES_PATH
        scheme = "https" if secure else "http"
        return f"{scheme}://{self.host}:{self.port_for(OtlpProtocol.HTTP)}{path}"


def chosen_protocol(endpoint: OtlpEndpoint, wanted: OtlpProtocol) -> OtlpProtocol:
    """The protocol that is spoken with ``endpoint``."""
    if wanted is not OtlpProtocol.AUTO:
        return wanted
    return OtlpProtocol.GRPC if endpoint.port == _GRPC_PORT else OtlpProtocol.HTTP


def otlp_endpoint(given: str) -> OtlpEndpoint | None:
    """A parser: nothing, or an address."""
    if not given:
        return None
    has_scheme = "://" in given
    try:
        parts = urlsplit(given if has_scheme else f"//{given}")
        port = parts.port
    except ValueError:
        raise ValueError(_ACCEPTED) from None
    host = parts.netloc.rpartition("@")[2]
    host = host[: host.rfind(":")] if port is not None else host.removesuffix(":")
    good = not (parts.query or parts.fragment) and "?" not in given and "#" not in given
    if not good or parts.scheme not in ("", "http", "https") or not _HOST.match(host) or port == 0:
        raise ValueError(_ACCEPTED)
    password = unquote(parts.password or "")
    return OtlpEndpoint(
        parts.scheme, host, port or 0, parts.path.rstrip("/"), _authorization(parts), password
    )


def _authorization(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def pairs(given: str) -> tuple[tuple[str, str], ...]:
    """A parser of ``key=value,key=value``, with values as in URLs."""
    found = []
    for item in given.split(","):
        key, equals, value = item.partition("=")
        if not item.strip():
            continue
        if not equals or not key.strip():
            raise ValueError("a comma list of key=value")
        found.append((key.strip(), unquote(value.strip())))
    return tuple(found)


def ratio(given: str) -> float:
    """A parser of shares."""
    try:
        share = float(given)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise ValueError("a number from 0 to 1")
    return share
