"""The named volumes of a Compose file, as far as it matters where their data is.

Decided here: that is read from the file's ``volumes`` alone, without a reader of YAML, which the
core has none of: keys by their indentation, and mappings in braces (JSON among them). Anything else
about a file is its agent's to judge. What is not understood counts as data of the node, since data
that was left behind is worse than work that stays; a user who knows better says so in the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

__all__ = ["has_local_volumes"]

Value: TypeAlias = "str | dict[str, Value] | None"

_SECTION = re.compile(r"^(?P<quote>[\"']?)volumes(?P=quote)[ \t]*:(?P<rest>[ \t].*)?$", re.M)
_LINE = re.compile(r"(?P<indent> *+)(?P<key>\"[^\"]*\"|'[^']*'|[^:{\[]*+):(?:\s(?P<value>.*))?$")
_TOKEN = re.compile(
    r"(?P<skip>\s+|#[^\n]*)|(?P<mark>[{}\[\],:])"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^']|'')*)'"
    r"|(?P<plain>[^\s{}\[\],:\"'#](?:[^{}\[\],:\n#]|:(?![\s,{}\[\]])|(?<!\s)#)*)"
)
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_AROUND = " \"'"
_NOTHING = ("", "null", "~")
_FALSE = ("false", "no", "off", "n")
_NETWORKED = ("nfs", "cifs", "smb", "ceph", "glusterfs", "fuse.")
_DEEPEST = 20


def has_local_volumes(text: str) -> bool:
    """Whether Compose makes a volume for this file whose data is on the node that it runs on: one
    that is not external, of no other driver than ``local``, and of no file system of the network.
    """
    if "volumes" not in text:
        return False
    return any(map(_is_local, _volumes(text)))


def _volumes(text: str) -> Iterator[Mapping[str, str]]:
    """What stands under each volume, keys of deeper mappings joined by dots."""
    text = text.replace("\r\n", "\n")
    whole = text.lstrip("\ufeff-\n\r\t ")
    if whole.startswith("{"):
        found = _braces(whole)
        yield from _flat_values(found.get("volumes") if isinstance(found, dict) else None)
        return
    section = _SECTION.search(text)
    if section is None:
        return
    rest = (section["rest"] or "").strip()
    body = _indented(text[section.end() :])
    if rest.startswith("{"):
        yield from _flat_values(_braces("\n".join([rest, *body])))
    else:
        yield from _entries(body)


def _indented(text: str) -> list[str]:
    """The lines up to the next key of the file itself."""
    lines: list[str] = []
    for line in text.splitlines():
        if line[:1] not in ("", " ", "#"):
            break
        lines.append(line)
    return lines


def _entries(lines: list[str]) -> Iterator[Mapping[str, str]]:
    top = -1
    entry: dict[str, str] | None = None
    above: list[tuple[int, str]] = []
    for line in lines:
        found = _LINE.match(_COMMENT.sub("", line).rstrip())
        if found is None:
            continue
        indent, value = len(found["indent"]), (found["value"] or "").strip()
        top = indent if top < 0 else top
        if indent <= top:
            if entry is not None:
                yield entry
            entry, above = {}, []
            _put(entry, "", value)
            continue
        assert entry is not None
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, found["key"].strip(_AROUND)))
        _put(entry, ".".join(name for _, name in above), value)
    if entry is not None:
        yield entry


def _put(entry: dict[str, str], name: str, value: str) -> None:
    if value.startswith("{"):
        entry.update(_flat(_braces(value), name))
    elif name:
        entry[name] = value.strip(_AROUND)


def _flat_values(volumes: Value) -> Iterator[Mapping[str, str]]:
    if isinstance(volumes, dict):
        for each in volumes.values():
            yield dict(_flat(each))


def _flat(value: Value, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if name:
            yield name, ""
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else key)
    elif name:
        yield name, value or ""


def _is_local(entry: Mapping[str, str]) -> bool:
    driver = entry.get("driver", "")
    kind = entry.get("driver_opts.type", "").lower()
    is_elsewhere = driver not in (*_NOTHING, "local") and "$" not in driver
    return not (_is_external(entry) or is_elsewhere or kind.startswith(_NETWORKED))


def _is_external(entry: Mapping[str, str]) -> bool:
    """``external`` is a yes, or a mapping with the volume's name."""
    if any(name.startswith("external.") for name in entry):
        return True
    return entry.get("external", "").lower() not in (*_NOTHING, *_FALSE)


def _braces(text: str) -> Value:
    """The mapping in braces that ``text`` begins with; ``None`` for what is none."""
    try:
        tokens = _tokens(text)
        return _value(*next(tokens), tokens, _DEEPEST)
    except (StopIteration, ValueError):
        return None


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Marks as they are, texts with an empty mark."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError
        position = found.end()
        if found["mark"]:
            yield found["mark"], ""
        elif found["skip"] is None:
            yield "", (found["double"] or found["single"] or found["plain"] or "").strip()


def _value(mark: str, word: str, tokens: Iterator[tuple[str, str]], depth: int) -> Value:
    """The value that begins with this token. A list is nothing: what matters stands in none."""
    if not depth or mark not in ("", "{", "["):
        raise ValueError
    if mark == "{":
        return _mapping(tokens, depth)
    if mark == "[":
        _skip_list(tokens)
        return None
    return word


def _mapping(tokens: Iterator[tuple[str, str]], depth: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    key = ""
    for mark, word in tokens:
        match mark:
            case "":
                key = word
                found[key] = None
            case ":":
                if _is_last(tokens, found, key, depth):
                    return found
            case ",":
                pass
            case "}":
                return found
            case _:
                raise ValueError
    raise ValueError


def _is_last(
    tokens: Iterator[tuple[str, str]], found: dict[str, Value], key: str, depth: int
) -> bool:
    """Note the value of ``key``, which may be nothing; whether the mapping ends there."""
    mark, word = next(tokens)
    if mark not in ("}", ","):
        found[key] = _value(mark, word, tokens, depth - 1)
    return mark == "}"


def _skip_list(tokens: Iterator[tuple[str, str]]) -> None:
    open_marks = 1
    for mark, _ in tokens:
        open_marks += (mark in ("[", "{")) - (mark in ("]", "}"))
        if not open_marks:
            return
    raise ValueError
