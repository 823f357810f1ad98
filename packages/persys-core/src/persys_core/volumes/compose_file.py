"""The named volumes of a Compose file, as far as it matters where their data is.

Decided here: that is read from the file's ``volumes`` alone, without a reader of YAML, which the
core has none of: keys by their indentation, and mappings in braces (JSON among them). Anything else
about a file is its agent's to judge. What is not understood counts as data of the node, since data
that was left behind is worse than work that stays; a user who knows better says so in the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from textwrap import dedent
from typing import TypeAlias

__all__ = ["has_local_volumes"]

Value: TypeAlias = "str | dict[str, Value] | None"

_ODD_BREAK = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BEFORE = re.compile(r"(?:\s+|#[^\n]*|---(?=\s))*+")
_TOP = re.compile(
    r"(?P<key>[\w./-]+|\"[^\"\\]*\"|'[^']*')[ \t]*:(?P<rest>[ \t].*)?"
    r"|-(?:[ \t].*)?|---[ \t]*(?:#.*)?|\.\.\.[ \t]*"
)
_LINE = re.compile(r"(?P<indent> *+)(?P<key>\"[^\"]*\"|'[^']*'|[^:{\[]*+):(?:\s(?P<value>.*))?$")
_TOKEN = re.compile(
    r"(?P<skip>\s+|#[^\n]*)|(?P<mark>[{}\[\],:])"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^']|'')*)'"
    r"|(?P<plain>[^\s{}\[\],:\"'#](?:[^{}\[\],:\n#]|:(?![\s,{}\[\]])|(?<!\s)#)*)"
)
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_WORD = re.compile(r"[A-Za-z0-9][\w./:@+-]*")
_NOTHING = ("", "null", "~")
_TRUE = ("true", "yes", "on")
_NETWORKED = ("nfs", "cifs", "smb", "ceph", "glusterfs", "fuse.")
_NO_TEXT = "&*!|>%@`?"
"""What a plain text cannot begin with: anchors, aliases, tags and more."""
_DEEPEST = 20
_SMALL = 4096


class _DoubtError(ValueError):
    """Something that is not understood here, so it may be a volume."""


def has_local_volumes(text: str) -> bool:
    """Whether Compose makes a volume for this file whose data is on the node that it runs on: one
    that is not external, of no other driver than ``local``, and of no file system of the network.
    On every doubt it does.
    """
    return _has_local(text) if len(text) < _SMALL else _has_local_large(text)


def _has_local(text: str) -> bool:
    if not any(hint in text for hint in ("volumes", "include", "\\")):
        return False
    try:
        return any(map(_is_local, _volumes(text)))
    except _DoubtError:
        return True


# Each decision about a workload asks several times, and a large file takes some 26 ms.
_has_local_large = lru_cache(maxsize=128)(_has_local)


def _volumes(text: str) -> Iterator[Mapping[str, str]]:
    """What stands under each volume, keys of deeper mappings joined by dots."""
    text = dedent(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if _ODD_BREAK.search(text):
        raise _DoubtError
    before = _BEFORE.match(text)
    whole = text[before.end() :] if before else text
    if not whole.startswith("{"):
        yield from _sections(text.split("\n"))
        return
    found = _braces(whole)
    if "include" in found or "<<" in found:
        raise _DoubtError
    yield from _flat_values(found.get("volumes"))


def _sections(lines: list[str]) -> Iterator[Mapping[str, str]]:
    """What stands under ``volumes``, once every key of the file itself is understood."""
    tops = [at for at, line in enumerate(lines) if line[:1] not in ("", " ", "#")]
    first = tops[0] if tops else len(lines)
    if any(_bare(line) for line in lines[:first]):
        raise _DoubtError
    for at, following in zip(tops, [*tops[1:], len(lines)], strict=True):
        found = _TOP.fullmatch(lines[at])
        key = (found["key"] or "").strip("\"'") if found else "include"
        if key == "include":  # It may bring volumes of its own.
            raise _DoubtError
        if found and key == "volumes":
            yield from _section((found["rest"] or "").strip(), lines[at + 1 : following])


def _section(rest: str, body: list[str]) -> Iterator[Mapping[str, str]]:
    if rest.startswith("{"):
        yield from _flat_values(_braces("\n".join([rest, *body])))
    elif _bare(rest).lower() in _NOTHING:
        yield from _entries(body)
    else:
        raise _DoubtError


def _entries(lines: list[str]) -> Iterator[Mapping[str, str]]:
    top = -1
    entry: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in filter(None, map(_bare, lines)):
        found = _LINE.match(line)
        indent = len(line) - len(line.lstrip(" "))
        is_first, top = top < 0, indent if top < 0 else top
        if indent <= top:
            if found is None or indent < top:
                raise _DoubtError
            if not is_first:
                yield entry
            entry, above = {}, []
            _put(entry, "", (found["value"] or "").strip())
        elif found is not None:
            while above and above[-1][0] >= indent:
                above.pop()
            above.append((indent, found["key"].strip(" \"'")))
            _put(entry, ".".join(name for _, name in above), (found["value"] or "").strip())
    if top >= 0:
        yield entry


def _bare(line: str) -> str:
    return _COMMENT.sub("", line).rstrip()


def _put(entry: dict[str, str], name: str, value: str) -> None:
    """Note a value; one that goes on in the next line may look like keys there."""
    if value.startswith("{"):
        entry.update(_flat(_braces(value), name))
        return
    opened = value[:1]
    if opened in ("'", '"', "[") and (len(value) < 2 or value[-1] != opened.replace("[", "]")):
        raise _DoubtError
    if name:
        entry[name] = value.strip("\"'")


def _flat_values(volumes: Value) -> Iterator[Mapping[str, str]]:
    if isinstance(volumes, str) and volumes.lower() not in _NOTHING:
        raise _DoubtError
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
    """Only what is a word in itself says anything: no alias, no tag, no variable."""
    driver = entry.get("driver", "").lower()
    kind = entry.get("driver_opts.type", "").lower()
    is_elsewhere = _is_word(driver) and driver not in (*_NOTHING, "local")
    is_networked = _is_word(kind) and kind.startswith(_NETWORKED)
    return not (_is_external(entry) or is_elsewhere or is_networked)


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None


def _is_external(entry: Mapping[str, str]) -> bool:
    """``external`` is a yes, or a mapping with the volume's name."""
    if any(name.startswith("external.") for name in entry):
        return True
    return entry.get("external", "").lower() in _TRUE


def _braces(text: str) -> dict[str, Value]:
    """The mapping in braces that ``text`` is."""
    try:
        tokens = _tokens(text)
        found = _value(*next(tokens), tokens, _DEEPEST)
    except StopIteration:
        raise _DoubtError from None
    if next(tokens, None) is not None or not isinstance(found, dict):
        raise _DoubtError
    return found


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Marks as they are, texts with an empty mark."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or (found["plain"] or "-")[0] in _NO_TEXT:
            raise _DoubtError
        position = found.end()
        if found["mark"]:
            yield found["mark"], ""
        elif found["skip"] is None:
            yield "", (found["double"] or found["single"] or found["plain"] or "").strip()


def _value(mark: str, word: str, tokens: Iterator[tuple[str, str]], depth: int) -> Value:
    """The value that begins with this token. A list is nothing: what matters stands in none."""
    if not depth or mark not in ("", "{", "["):
        raise _DoubtError
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
                if "\\" in word:  # An escape in a key may be any letter.
                    raise _DoubtError
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
                raise _DoubtError
    raise _DoubtError


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
    raise _DoubtError
