"""Which values of a spec are secrets, and how a text is cleaned of them.

Decided here: the name pattern, the mask, and where in a text a secret may stand (known values in
each spelling, URLs, ``name=value``, PEM private keys, and in a command the word after ``--token``).
In doubt too much is masked, but a secret of up to three characters only where it stands alone: a
text without any ``a`` helps nobody. Secrets are stored as given,
since the agent needs them; they never reach views, events, logs, spans, metrics or error texts
(decisions, values).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

__all__ = [
    "MASK",
    "is_secret_name",
    "masked",
    "masked_command",
    "scrubbed",
    "secret_command_values",
    "secret_env_values",
    "without_values",
]

MASK = "***"
_MIN_SECRET_LENGTH = 3
_MIN_PAIR_LENGTH = 6
_TELLING_LENGTH = 4
"""A shorter secret is found in many words by chance."""

_WORDS = (
    r"pass(?!e[ds]|ing|ive)|pwd|secret|token|credential|cookie|dsn|auth(?!or(?!i[sz]))"
    r"|(?:private|api|access|account|shared|signing|encryption|master|ssh)[_.-]?key"
)
# Too short to be looked for inside of words: PATH, PATTERN and COMPAT hold no secret.
_WHOLE_WORDS = r"(?<![a-z0-9])(?:pat|pem|jwt|pw)(?![a-z0-9])"
_LAST_WORDS = r"[_.-]keys?|(?<![a-z0-9])private"
_SECRET_NAME = re.compile(rf"{_WORDS}|{_WHOLE_WORDS}|(?:{_LAST_WORDS})\Z", re.IGNORECASE)
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
"""Variables of every shell; elsewhere ``pwd`` is a password."""

# Every repetition before a value is bounded and every one in it possessive, so that the time for
# a text grows with its length only.
_VALUE = (
    r'"(?P<double>(?:[^"\\]|\\.)++)"?'
    r"|'(?P<single>(?:[^'\\]|\\.)++)'?"
    r"""|\\+["'](?P<escaped>[^"'\\]++)"""
    r"""|(?P<plain>(?:[^\s"'`\\&;,]|\\(?!["'])|[&;,](?![\w.-]{1,64}=|\s|\Z))++)"""
)
_PAIR = re.compile(
    r"(?=[pstcdaemj_.-])"  # what a name may begin with: most places are left at once
    rf"(?P<name>(?:(?:{_WORDS}|{_WHOLE_WORDS})[\w.-]{{0,40}}|{_LAST_WORDS})\]?)"
    r"""(?P<sign>=(?!=)|[ ]=[ ]|\\{0,4}["'][ ]?[:=][ ]?)"""
    rf"(?:{_VALUE})",
    re.IGNORECASE | re.DOTALL,
)
# A flag and its value inside one word of a command, as scripts have it (``sh -c "app --token x"``).
_FLAG = re.compile(
    r"(?<![^\s;&|('\"])(?P<flag>--?[\w.-]{1,100})[ \t]{1,8}(?!--)"
    r"""(?:"(?P<double>[^"]++)"?|'(?P<single>[^']++)'?|(?P<plain>[^\s"'`;&|]++))"""
)
_BARE_FLAG = re.compile(r"--?[\w.-]+\Z")
_HEADER = re.compile(r"(?P<name>(?:authorization|cookie)[ ]?:[ ]?)[^\r\n\"'\\]++", re.IGNORECASE)
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:-----)?")
_SCHEME_END = "://"
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_BLANK = re.compile(r"\s")
_STRICT_PASSWORD = re.compile(r"[^/\s:@]*:(?P<password>[^/\s@]+)@")
_NEEDS_ESCAPING = re.compile(r'["\'\\\x00-\x1f\x7f-\U0010ffff]')


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret (``DB_PASSWORD``, ``SIGNING_KEY`` …)."""
    return name not in _DIRECTORIES and _SECRET_NAME.search(name) is not None


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """``values`` with every secret replaced by the mask, also inside URLs and ``name=value``."""
    return {
        name: MASK if _is_secret(name, value) else scrubbed(value, ())
        for name, value in values.items()
    }


def secret_env_values(env: Mapping[str, str]) -> frozenset[str]:
    """The values in ``env`` that must not appear in any text, in every spelling they may have.

    Those are the values of secret names, values that hold a private key, the passwords in URLs, and
    ``name=value`` in connection strings. Values shorter than three characters are left out: hiding
    every ``1`` of a text helps no one.
    """
    found = {value for name, value in env.items() if _is_secret(name, value)}
    for value in env.values():
        found.update(_url_passwords(value), _pair_values(value))
    spelled = {each for value in found for each in _spellings(value)}
    return frozenset(each for each in spelled if len(each) >= _MIN_SECRET_LENGTH)


def masked_command(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with every secret masked: what follows a flag of a secret name
    (``--token``, ``-password``), what holds a private key, and what ``scrubbed`` finds in each."""
    known, hidden = secret_command_values(words), set(_flagged(words))
    return tuple(
        MASK
        if (index in hidden and word) or _holds_private_key(word)
        else scrubbed(_FLAG.sub(_masked_flag, word), known)
        for index, word in enumerate(words)
    )


def secret_command_values(words: Sequence[str]) -> frozenset[str]:
    """The values in a command that must not appear in any text: those of flags with secret names,
    and what ``secret_env_values`` finds inside each word."""
    if not words:
        return frozenset()
    found = {words[index] for index in _flagged(words)}
    for word in words:
        found.update(
            each[each.lastgroup or 0] for each in _FLAG.finditer(word) if _is_secret_flag(each)
        )
    spelled = {each for value in found for each in _spellings(value)}
    inside = secret_env_values({str(index): word for index, word in enumerate(words)})
    return frozenset(each for each in spelled if len(each) >= _MIN_SECRET_LENGTH) | inside


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or _holds_private_key(value)


def _holds_private_key(value: str) -> bool:
    return _KEY_BEGIN.search(value) is not None


def _flagged(words: Sequence[str]) -> Iterator[int]:
    """Where a word stands after a flag of a secret name. What looks like a long flag itself is no
    value, so that a switch such as ``--use-token`` hides nothing of what stands behind it."""
    for index, (flag, value) in enumerate(pairwise(words), start=1):
        is_secret = _BARE_FLAG.match(flag) is not None and is_secret_name(flag)
        if is_secret and not value.startswith("--"):
            yield index


def _is_secret_flag(found: re.Match[str]) -> bool:
    return is_secret_name(found["flag"])


def _masked_flag(found: re.Match[str]) -> str:
    return _masked_pair(found) if _is_secret_flag(found) else found[0]


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the given secret values, private keys, URL credentials, and values of secret
    names."""
    text = without_values(text, {each for secret in secrets for each in _spellings(secret)})
    # Most texts hold none of these, and this is called for every report of every listing.
    if "-----BEGIN " in text:
        text = _without_private_keys(text)
    if "@" in text and _SCHEME_END in text:
        text = _without_url_credentials(text)
    if "=" in text or ":" in text:
        text = _PAIR.sub(_masked_pair, text)
        if _has_header(text):
            text = _HEADER.sub(rf"\g<name>{MASK}", text)
    return text


def without_values(text: str, values: Iterable[str]) -> str:
    """``text`` without the ``values``, the longest first since one may hold another; short ones go
    only where they are no part of a word."""
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _TELLING_LENGTH:
            text = text.replace(value, MASK)
        elif value in text and value.strip("*"):  # a mask is not masked again
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
    return text


def _without_private_keys(text: str) -> str:
    """What has a beginning and no end was cut, so all behind it may be the key."""
    parts, done = [], 0
    while begin := _KEY_BEGIN.search(text, done):
        end = _KEY_END.search(text, begin.end())
        parts += [text[done : begin.start()], MASK]
        done = end.end() if end else len(text)
    return "".join([*parts, text[done:]])


def _has_header(text: str) -> bool:
    lowered = text.lower()
    return "authorization" in lowered or "cookie" in lowered


def _spellings(secret: str) -> Iterator[str]:
    """``secret`` as it is and as JSON, Python and shells write it inside quotes."""
    if not secret:
        return
    yield secret
    if not _NEEDS_ESCAPING.search(secret):
        return
    bare = secret.strip()  # those who echo a value in several lines drop the last line's end
    once = {json.dumps(bare)[1:-1], json.dumps(bare, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(each)[1:-1] for each in once}
    lines = {bare, repr(bare)[1:-1], bare.replace("\n", "\\n"), bare.replace("\n", "\r\n")}
    yield from (once | twice | lines) - {""}


def _url_passwords(value: str) -> Iterator[str]:
    """Passwords as the rules of URLs read them, and up to the last ``@`` as people write them."""
    for begin, end in _url_credentials(value):
        password = value[begin:end].partition(":")[2]
        strict = _STRICT_PASSWORD.match(value, begin)
        for each in filter(None, (password, strict["password"] if strict else "")):
            yield from {each, _decoded(each)}


def _decoded(text: str) -> str:
    """``text`` with ``%40`` and the like as the characters they stand for."""
    raw = _PERCENT.sub(
        lambda found: bytes.fromhex(found[1].decode()), text.encode(errors="replace")
    )
    return raw.decode(errors="replace")


def _pair_values(value: str) -> Iterator[str]:
    for found in _PAIR.finditer(value):
        secret = found[found.lastgroup or 0]
        if len(secret) >= _MIN_PAIR_LENGTH:
            yield secret


def _masked_pair(found: re.Match[str]) -> str:
    """The pair with its quotes, and the mask between them."""
    group = found.lastgroup or 0
    head = found.string[found.start() : found.start(group)]
    return f"{head}{MASK}{found.string[found.end(group) : found.end()]}"


def _without_url_credentials(text: str) -> str:
    parts, done = [], 0
    for begin, end in _url_credentials(text):
        parts += [text[done:begin], MASK]
        done = end
    return "".join([*parts, text[done:]])


def _url_credentials(text: str) -> Iterator[tuple[int, int]]:
    """From the ``://`` to the last ``@`` of each run without blanks, for every run with both.

    A password may hold ``/`` and ``@`` that nobody encoded, hence the last one.
    """
    done = 0
    while (sign := text.find(_SCHEME_END, done)) >= 0:
        begin = sign + len(_SCHEME_END)
        blank = _BLANK.search(text, begin)
        done = blank.start() if blank else len(text)
        at = text.rfind("@", begin, done)
        if at >= 0:
            yield begin, at
