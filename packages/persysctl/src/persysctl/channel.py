"""A channel to a scheduler or an agent, in plain text or with the certificates of the settings.

Decided here: the options of a channel, and how certificates that cannot be used are told. Whom it
leads to is decided by the settings.
"""

from __future__ import annotations

import ssl

import grpc
import grpc.aio

from persysctl.errors import UsageError
from persysctl.settings import ServerSettings, TlsFiles

__all__ = ["REQUEST_ID_KEY", "open_channel"]

REQUEST_ID_KEY = "x-request-id"
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024


def open_channel(settings: ServerSettings) -> grpc.aio.Channel:
    """A channel that connects when it is first used. Raises UsageError for unusable files."""
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.enable_http_proxy", 0),
        # A channel that is opened anew tries at once, whatever an earlier one met.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.primary_user_agent", "persysctl"),
    ]
    if settings.tls is None:
        return grpc.aio.insecure_channel(settings.server, options=options)
    if settings.server_name:
        options.append(("grpc.ssl_target_name_override", settings.server_name))
    return grpc.aio.secure_channel(settings.server, _credentials(settings.tls), options=options)


def _credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    try:
        _check(files)
        ca, key, certificate = (
            path.read_bytes() if path else None for path in (files.ca, files.key, files.certificate)
        )
    except ssl.SSLError as error:
        named = ", ".join(str(path) for path in (files.ca, files.certificate, files.key) if path)
        raise UsageError(f"the certificates cannot be used ({named}): {error}") from error
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _check(files: TlsFiles) -> None:
    """Load the files once where a fault has a name; gRPC would only write to standard error."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca is not None:
        context.load_verify_locations(files.ca)
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, files.key, password="")
