"""Stored records: exact, forgiving to others, and careful with what is not understood."""

import json
from contextlib import suppress
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from persys_adapters.records.codec import UnreadableRecordError, decode, encode
from persys_core.ports.cluster_store import Key, Kind
from persys_core.testing.strategies import Entry, allocations, entries

UNKNOWN_NAMES = st.sampled_from(["futureField", "zone", "Ünknown"])
JSON_VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
).filter(bool)


@pytest.mark.slow
@given(entries(), st.text(max_size=40))
def test_round_trip_is_exact(entry: Entry, token: str) -> None:
    """decode(encode(x)) is x, with the token, and nothing unknown in it."""
    key, record = entry
    decoded = decode(key, encode(key, record, token))
    assert decoded.record == record
    assert decoded.token == token
    assert decoded.unknown == {}


def kinds_in(value: Any) -> Any:
    """The classes in a value, at any depth: a word that is only equal to a member shows here."""
    match value:
        case dict():
            return {key: kinds_in(part) for key, part in value.items()}
        case list() | tuple():
            return [kinds_in(part) for part in value]
        case _:
            return type(value)


@pytest.mark.slow
@given(entries())
def test_words_come_back_as_members(entry: Entry) -> None:
    """A state is compared by identity, so its text alone would be another state after a restart."""
    key, record = entry
    decoded = decode(key, encode(key, record))
    assert kinds_in(asdict(decoded.record)) == kinds_in(asdict(record))


@pytest.mark.slow
@given(entries(), st.dictionaries(UNKNOWN_NAMES, JSON_VALUES, min_size=1))
def test_unknown_fields_survive(entry: Entry, unknown: dict[str, Any]) -> None:
    """What we do not know, at the top or inside, is given back and written again (U01)."""
    key, record = entry
    raw = json.loads(encode(key, record, "first"))
    raw |= unknown
    raw["persys"] |= unknown
    decoded = decode(key, json.dumps(raw).encode())
    assert decoded.record == record
    again = json.loads(encode(key, record, "second", decoded.unknown))
    assert again["persys"].pop("token") == "second"
    raw["persys"].pop("token")
    assert again == raw


@pytest.mark.slow
@given(entries(), st.sampled_from([b"", b"\xff", b"[]", b"null", b'"x"', b"{", b"7"]))
def test_damage_is_told(entry: Entry, damage: bytes) -> None:
    """A value that is no JSON object raises one error, which names the key (U01)."""
    key, _ = entry
    if key.kind is Kind.LEADER:
        return
    with pytest.raises(UnreadableRecordError, match="left as it is"):
        decode(key, damage)


@pytest.mark.slow
@given(entries(), st.data())
def test_wrong_types_are_told_or_read(entry: Entry, data: st.DataObject) -> None:
    """A field of another type is an UnreadableRecordError or a record, never another error."""
    key, record = entry
    raw = json.loads(encode(key, record, "token"))
    name = data.draw(st.sampled_from(sorted(raw)))
    raw[name] = data.draw(JSON_VALUES)
    with suppress(UnreadableRecordError):
        assert type(decode(key, json.dumps(raw).encode()).record) is type(record)


@given(allocations())
def test_missing_ids_come_from_the_key(allocation: Any) -> None:
    """A record that does not say its id has the one of its key."""
    key = Key.allocation(allocation.node_id)
    raw = json.loads(encode(key, allocation))
    del raw["nodeId"]
    assert decode(key, json.dumps(raw).encode()).record == allocation


def test_nulls_are_missing() -> None:
    """A null, as Go writes for an empty list or map, is the same as no field at all."""
    key = Key.workload("w1")
    full = {"id": "w1", "type": "container", "image": "nginx", "resources": {}}
    nulls = {"commandList": None, "envVars": None, "labels": None, "ports": None, "vm": None}
    plain = decode(key, json.dumps(full).encode())
    assert decode(key, json.dumps(full | nulls).encode()).record == plain.record
