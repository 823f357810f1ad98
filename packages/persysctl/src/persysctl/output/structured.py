"""Answers for programs: proto JSON, or the same as YAML, in one fixed order.

Decided here: names and values are those of canonical proto JSON (lowerCamelCase, 64-bit integers as
texts, zero values left out); keys are sorted, so equal answers are equal texts.
"""

from __future__ import annotations

import json
from enum import StrEnum

import yaml
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

__all__ = ["OutputFormat", "dump", "dump_line", "listing", "plain"]


class OutputFormat(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def plain(message: Message) -> dict[str, object]:
    """A message as plain values."""
    return dict(MessageToDict(message))


def listing(response: Message, field: str) -> dict[str, object]:
    """A list answer: its entries as ``items`` beside what it says about itself."""
    values = plain(response)
    entries = values.pop(field, [])
    return {**values, "items": entries}


def dump(value: object, output_format: OutputFormat) -> str:
    """One document, with its final newline."""
    if output_format is OutputFormat.YAML:
        return yaml.safe_dump(value, sort_keys=True, allow_unicode=True, width=100)
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def dump_line(value: object, output_format: OutputFormat) -> str:
    """One document of a stream: a line of JSON, or a YAML document with its marker."""
    if output_format is OutputFormat.YAML:
        return "---\n" + dump(value, output_format)
    return json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n"
