"""Where traces go: what the OTEL_ variables may hold, and what they mean together."""

from __future__ import annotations

import pytest

from persys_server.settings import SettingsError, load_settings
from persys_server.settings.otlp import OtlpProtocol, Sampler, chosen_protocol

HTTP, GRPC = OtlpProtocol.HTTP, OtlpProtocol.GRPC


def destination(endpoint: str, **others: str) -> tuple[OtlpProtocol, str]:
    settings = load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **others})
    found = settings.otlp_endpoint
    assert found is not None
    protocol = chosen_protocol(found, settings.otlp_protocol)
    secure = found.is_secure(insecure=settings.otlp_insecure)
    if protocol is GRPC:
        return protocol, f"{'tls ' if secure else ''}{found.host}:{found.port_for(protocol)}"
    return protocol, found.url(secure=secure)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("jaeger:4318", (HTTP, "http://jaeger:4318/v1/traces")),
        ("jaeger", (HTTP, "http://jaeger:4318/v1/traces")),
        ("jaeger:4317", (GRPC, "jaeger:4317")),
        ("http://host:4318", (HTTP, "http://host:4318/v1/traces")),
        ("http://host:4318/", (HTTP, "http://host:4318/v1/traces")),
        ("http://host:4318/v1/traces", (HTTP, "http://host:4318/v1/traces")),
        ("https://otlp.example/otlp", (HTTP, "https://otlp.example:443/otlp/v1/traces")),
        ("http://host", (HTTP, "http://host:80/v1/traces")),
        ("https://host:4317", (GRPC, "tls host:4317")),
        ("[::1]:4318", (HTTP, "http://[::1]:4318/v1/traces")),
        ("host:4318/custom", (HTTP, "http://host:4318/custom/v1/traces")),
    ],
)
def test_an_endpoint_is_understood(endpoint: str, expected: tuple[OtlpProtocol, str]) -> None:
    """The port decides about the protocol, the scheme about TLS, and /v1/traces is added."""
    assert destination(endpoint) == expected


def test_the_other_variables_decide_only_what_the_endpoint_leaves_open() -> None:
    """F9: INSECURE never takes TLS from an https address; a named protocol goes before the port."""
    tls_off, tls_on = {"OTEL_EXPORTER_OTLP_INSECURE": "true"}, {"OTEL_EXPORTER_OTLP_INSECURE": "no"}
    assert destination("https://h:1", **tls_off)[1] == "https://h:1/v1/traces"
    assert destination("http://h:1", **tls_on)[1] == "http://h:1/v1/traces"
    assert destination("h:1", **tls_on)[1] == "https://h:1/v1/traces"
    assert destination("h", OTEL_EXPORTER_OTLP_PROTOCOL="grpc") == (GRPC, "h:4317")
    assert destination("h:4317", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf")[0] is HTTP


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://h:1",
        "h:99999",
        "h:0",
        "http://",
        "http://h:4318?token=x",
        "h#x",
        "a b:1",
        "http://h:x",
    ],
)
def test_other_endpoints_are_refused(endpoint: str) -> None:
    """The problem names the variable and shows what is accepted."""
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT: .*host:port"):
        load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})


def test_grpc_with_a_path_is_refused() -> None:
    """gRPC has no paths, so one is a mistake that is told at the start."""
    with pytest.raises(SettingsError, match="has the path /otlp"):
        load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317/otlp"})


def test_credentials_of_an_endpoint_are_secrets() -> None:
    """They become a header, stand in no address, no repr and no error text, and are masked."""
    settings = load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:s3cr3t%21@h:4318"})
    endpoint = settings.otlp_endpoint
    assert endpoint is not None
    assert endpoint.authorization == "Basic bWU6czNjcjN0IQ=="
    assert endpoint.url(secure=False) == "http://h:4318/v1/traces"
    assert "s3cr3t" not in repr(settings)
    assert {"s3cr3t!", endpoint.authorization} <= settings.secrets
    for wrong in ("me:s3cr3t@h:x", "http://me:s3cr3t@h?x"):
        with pytest.raises(SettingsError) as caught:
            load_settings({"JAEGER_ENDPOINT": wrong})
        assert "s3cr3t" not in str(caught.value)


def test_the_rest_is_read() -> None:
    """Headers and attributes are pairs; samplers have OpenTelemetry's names; a ratio is a share."""
    settings = load_settings(
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc, x-scope=1,",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
            "OTEL_TRACES_SAMPLER": "ParentBased_TraceIdRatio",
            "OTEL_TRACES_SAMPLER_ARG": "0.25",
        }
    )
    assert settings.otlp_headers == (("Authorization", "Bearer abc"), ("x-scope", "1"))
    assert settings.secrets == {"Bearer abc"}
    assert settings.otel_resource_attributes == (("deployment.environment", "test"),)
    assert (settings.otel_traces_sampler, settings.otel_traces_ratio) == (
        Sampler.PARENT_RATIO, 0.25,
    )  # fmt: skip
    assert settings.otel_service_name == "persys-scheduler"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no-equals"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan"),
    ],
)
def test_other_values_are_refused(name: str, text: str) -> None:
    """Each is a problem that names its variable."""
    with pytest.raises(SettingsError, match=name):
        load_settings({name: text})
