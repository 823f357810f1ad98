"""The exporters of OpenTelemetry, made from our settings. See ``settings.otlp`` for their meaning.

Decided here: how long one attempt to send may take, and that nothing of a credential stands in an
address that the libraries know, since they log addresses. What can be given is given, so that no
variable of the environment that is not in our table stops the start; the libraries themselves read
only those of certificates.
"""

from __future__ import annotations

from typing import Any

import grpc
import requests
from attrs import frozen
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace.export import SpanExporter

from persys_server.settings import Settings
from persys_server.settings.otlp import OtlpEndpoint, OtlpProtocol, chosen_protocol

__all__ = ["SEND_SECONDS", "Destination", "otlp_exporter"]

SEND_SECONDS = 3.0
_NO_PROXY: Any = (("grpc.enable_http_proxy", 0),)


@frozen
class Destination:
    """Where spans go, fit to be shown."""

    protocol: OtlpProtocol
    address: str


def otlp_exporter(settings: Settings) -> tuple[SpanExporter, Destination]:
    """An exporter for ``settings``, which name an endpoint."""
    endpoint = settings.otlp_endpoint
    assert endpoint is not None
    protocol = chosen_protocol(endpoint, settings.otlp_protocol)
    secure = endpoint.is_secure(insecure=settings.otlp_insecure)
    headers = {name.lower(): value for name, value in settings.otlp_headers}
    if endpoint.authorization:
        headers.setdefault("authorization", endpoint.authorization)
    if protocol is OtlpProtocol.GRPC:
        return _over_grpc(endpoint, headers, secure=secure)
    return _over_http(endpoint, headers, secure=secure)


def _over_grpc(
    endpoint: OtlpEndpoint, headers: dict[str, str], *, secure: bool
) -> tuple[SpanExporter, Destination]:
    address = f"{endpoint.host}:{endpoint.port_for(OtlpProtocol.GRPC)}"
    exporter = GrpcExporter(
        endpoint=address,
        insecure=not secure,
        headers=tuple(headers.items()),
        compression=grpc.Compression.NoCompression,
        timeout=SEND_SECONDS,
        channel_options=_NO_PROXY,
    )
    return exporter, Destination(OtlpProtocol.GRPC, address)


def _over_http(
    endpoint: OtlpEndpoint, headers: dict[str, str], *, secure: bool
) -> tuple[SpanExporter, Destination]:
    address = endpoint.url(secure=secure)
    session = requests.Session()
    # Neither a proxy nor a .netrc of the environment is meant for a collector.
    session.trust_env = False
    exporter = HttpExporter(
        endpoint=address,
        headers=headers,
        timeout=SEND_SECONDS,
        compression=Compression.NoCompression,
        session=session,
    )
    return exporter, Destination(OtlpProtocol.HTTP, address)
