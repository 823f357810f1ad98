"""Events and telemetry have the shapes that existing readers know, and nothing secret in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_adapters.records.reconciliations import reconciliation_json
from persys_adapters.redis.address import Address, RedisTarget, address_of
from persys_adapters.redis.event_json import bounded, event_from, event_json, token_in
from persys_adapters.redis.stream import is_before, is_entry_id
from persys_adapters.redis.telemetry_json import (
    meter_payload,
    reconcile_status_json,
)
from persys_core.model.event import Event, EventType
from persys_core.model.usage import WorkloadUsage

AT = datetime(2026, 5, 29, 12, 30, 45, 123456, tzinfo=UTC)


def test_an_event_is_written_as_the_reference_writes_it() -> None:
    """Names, order of the parts, and absent fields left out."""
    event = Event(EventType.NODE_LOST, AT, node_id="n1", reason="r", details={"b": "2", "a": "1"})
    assert event_json(event, "t-1") == (
        b'{"id":"t-1","type":"NodeLost","nodeId":"n1","reason":"r",'
        b'"timestamp":"2026-05-29T12:30:45.123456Z","details":{"a":"1","b":"2"}}'
    )


def test_an_event_of_the_reference_is_read() -> None:
    """Details of any kind become texts; nanoseconds, unknown fields and nulls are no trouble."""
    raw = {
        "id": "6f2", "type": "DriftDetected", "workloadId": "w", "nodeId": None,
        "timestamp": "2026-05-29T12:30:45.123456789Z", "future": 1,
        "details": {"resolved": True, "n": 3, "s": "x", "o": {"a": 1}},
    }  # fmt: skip
    event = event_from(json.dumps(raw).encode(), "5-0")
    assert event == Event(
        EventType.DRIFT_DETECTED,
        AT,
        workload_id="w",
        details={"resolved": "true", "n": "3", "s": "x", "o": '{"a":1}'},
        id="5-0",
    )


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b'{"type":"FromTheFuture","timestamp":""}', b"\xff"]
)
def test_what_is_no_event_is_left_out(raw: bytes) -> None:
    """Neither damage nor a type of a later release ends a reader."""
    assert event_from(raw, "1-1") is None
    assert token_in(raw) == ""


@pytest.mark.slow
@given(st.text(), st.dictionaries(st.text(), st.text()), st.text())
def test_any_event_survives_the_way(reason: str, details: dict[str, str], workload: str) -> None:
    """Once bounded, whatever an event says is read as it was written."""
    event = bounded(Event(EventType.NODE_LOST, AT, workload, reason=reason, details=details))
    found = event_from(event_json(event, "t"), "")
    assert found == event


def test_texts_are_bounded_and_hold_no_secret() -> None:
    """V02 and A04: at most 1 KiB per text, odd characters replaced, credentials masked."""
    event = bounded(
        Event(
            EventType.WORKLOAD_FAILED,
            AT,
            reason="pull from redis://u:hunter2@h/0 failed \ud800" + "x" * 100_000,
            details={"password": "hunter2", **{f"k{number}": "y" * 5000 for number in range(99)}},
        )
    )
    raw = event_json(event, "t")
    assert len(event.reason.encode()) <= 1024
    assert b"hunter2" not in raw
    assert len(raw) < 40_000


def test_reconciliation_has_the_reference_shape() -> None:
    """The record, and the status with its fixed names and every other fact beside them."""
    facts = {
        "action": "ReapplyRunning", "success": "true", "reason": "why", "retryCount": "2",
        "attemptedAt": "2026-05-29T12:30:45Z", "nodeId": "n1",
    }  # fmt: skip
    assert json.loads(reconciliation_json("w", facts)) == {
        "workloadId": "w", "action": "ReapplyRunning", "success": True, "reason": "why",
        "attemptedAt": "2026-05-29T12:30:45Z",
    }  # fmt: skip
    assert json.loads(reconcile_status_json(facts)) == {
        "nodeId": "n1",
        "lastReconciliation": "2026-05-29T12:30:45Z",
        "lastReconciliationAction": "ReapplyRunning",
        "lastReconciliationSuccess": True,
        "reconciliationRetryCount": 2,
    }


def test_the_meter_gets_the_snapshot_of_the_seed() -> None:
    """The payload has the names of the seed's example under ``usage``."""
    usage = WorkloadUsage("w", "n", "container", 45.2, 1, 2, 3, 4, 5, AT, "docker-stats")
    payload = json.loads(meter_payload("e", usage))
    assert (payload["event_id"], payload["node_id"], payload["workload_id"]) == ("e", "n", "w")
    assert set(payload["usage"]) == {
        "workloadId", "type", "cpuPercent", "memoryBytes", "diskReadBytes", "diskWriteBytes",
        "netRxBytes", "netTxBytes", "collectedAt", "source",
    }  # fmt: skip


def test_ids_are_compared_as_numbers() -> None:
    """An id is two numbers; texts of other kinds are none and stand before all."""
    assert is_before("9-9", "10-0")
    assert is_before("10-2", "10-10")
    assert not is_before("10-10", "10-10")
    assert is_before("none", "0-1")
    odd = ("", "5", "5-", "a-1", "5-1\n", "-1-1", "1-99999999999999999999", "\u0665-1")
    assert not any(map(is_entry_id, odd))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("r", Address("r", 6379)), ("r:1", Address("r", 1)), ("[::1]:7", Address("::1", 7)),
        ("::1", Address("::1", 6379)), ("[::1]", Address("::1", 6379)),
    ],
)  # fmt: skip
def test_addresses_are_read(text: str, address: Address) -> None:
    """A host with or without a port, also of IPv6."""
    assert address_of(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "redis://u:pw@h:1",
        "h:x",
        "h:0",
        "h:70000",
        ":6379",
        "a b:1",
        "h:1:2",
        "h::1:2",
        "[h:1]:2",
        "[::1]x:2",
    ],
)
def test_other_addresses_are_refused_without_being_quoted(text: str) -> None:
    """The text says what is accepted, and no password."""
    with pytest.raises(ValueError, match="host:port") as caught:
        address_of(text)
    assert "pw" not in str(caught.value)


def test_a_target_does_not_show_its_passwords() -> None:
    """A04: neither of them is in its repr."""
    assert "s3cr3t" not in repr(RedisTarget(password="s3cr3t", sentinel_password="s3cr3t"))
