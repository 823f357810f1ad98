"""Errors of calls: worded for people, each with its exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
import pytest

from persysctl.exit_codes import ExitCode
from persysctl.status_details import STATUS_DETAILS_KEY, field_violations
from tests.unit.ctl.harness import FakeScheduler, Refusal, ask, call


def length_prefixed(number: int, payload: bytes) -> bytes:
    """A field of the wire format that holds bytes shorter than 128."""
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload


def bad_request(*violations: tuple[str, str]) -> bytes:
    """A google.rpc.Status with a BadRequest, written byte by byte."""
    entries = b"".join(
        length_prefixed(
            1, length_prefixed(1, field.encode()) + length_prefixed(2, description.encode())
        )
        for field, description in violations
    )
    kind = b"type.googleapis.com/google.rpc.BadRequest"
    detail = length_prefixed(1, kind) + length_prefixed(2, entries)
    return b"\x08\x03" + length_prefixed(2, b"bad") + length_prefixed(3, detail)


@pytest.mark.asyncio
async def test_nobody_listens() -> None:
    """A refused connection ends in 3 and says what was tried and how to try elsewhere."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        result = await call("list", "nodes", "--server", address)
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert f"no scheduler at {address} (in plain text)" in result.err
    assert "--server HOST:PORT" in result.err


@pytest.mark.asyncio
async def test_field_errors_are_listed() -> None:
    """A04, R4: the details of a refused request are shown field by field."""
    metadata = ((STATUS_DETAILS_KEY, bad_request(("spec.a", "too big"), ("spec.b", "unknown"))),)
    refusal = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "2 errors", metadata)
    result = await ask(FakeScheduler(refusals={"ListNodes": refusal}), "nodes")
    assert result.code == ExitCode.FAILED
    assert result.err == (
        "error: the request is not valid:\n  spec.a: too big\n  spec.b: unknown\n"
    )


@pytest.mark.parametrize("raw", [b"", b"\xff\xff\xff", b"\x1a\x7f"])
def test_unreadable_details_are_no_error(raw: bytes) -> None:
    """Details that cannot be read are as good as none."""
    assert field_violations([("other", "x"), (STATUS_DETAILS_KEY, raw)]) == []


@pytest.mark.parametrize(
    ("code", "text", "exit_code", "part"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "id: bad", ExitCode.FAILED, "not valid: id: bad"),
        (grpc.StatusCode.NOT_FOUND, "node 'x' not found", ExitCode.FAILED, "node 'x' not found"),
        (grpc.StatusCode.UNAVAILABLE, "degraded mode", ExitCode.FAILED, "cannot do this now"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", ExitCode.NOT_YET, "no answer in 15 s"),
        (grpc.StatusCode.PERMISSION_DENIED, "role agent", ExitCode.FAILED, "not allowed: role"),
        (grpc.StatusCode.UNIMPLEMENTED, "", ExitCode.FAILED, "does not know this call"),
        (grpc.StatusCode.INTERNAL, "boom", ExitCode.FAILED, "under request id ctl-"),
        (grpc.StatusCode.FAILED_PRECONDITION, "is draining", ExitCode.FAILED, "refused: is dra"),
        (grpc.StatusCode.DATA_LOSS, "hm", ExitCode.FAILED, "DATA_LOSS: hm"),
    ],
)
@pytest.mark.asyncio
async def test_answers_that_say_no(
    code: grpc.StatusCode, text: str, exit_code: ExitCode, part: str
) -> None:
    """Each status becomes a text and a code; none shows a traceback."""
    result = await ask(FakeScheduler(refusals={"ListNodes": Refusal(code, text)}), "nodes")
    assert result.code == exit_code
    assert part in result.err
    assert "Traceback" not in result.err
    assert result.out == ""


@pytest.mark.asyncio
async def test_hostile_texts_do_not_steer_the_terminal() -> None:
    """Control characters in the scheduler's words are replaced before they are shown."""
    refusal = Refusal(grpc.StatusCode.NOT_FOUND, "a\x1b[2Jb\x9bc")
    result = await ask(FakeScheduler(refusals={"ListNodes": refusal}), "nodes")
    assert "\x1b" not in result.err
    assert "\x9b" not in result.err


@pytest.mark.asyncio
async def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    """What is no certificate is told with its path before anything is tried."""
    pem = tmp_path / "ca.pem"
    pem.write_text("nothing")
    result = await call("nodes", "--ca-file", str(pem))
    assert result.code == ExitCode.USAGE_OR_CONNECTION
    assert f"the certificates cannot be used ({pem})" in result.err
