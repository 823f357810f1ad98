"""Secrets that an agent echoes: masked in every place and spelling, and quickly."""

from __future__ import annotations

import json
import time

import pytest

from persys_core.model.resources import Resources
from persys_core.model.secrets import (
    MASK,
    is_secret_name,
    masked,
    masked_command,
    scrubbed,
    secret_env_values,
)
from persys_core.model.spec import ContainerSpec, WorkloadSpec, secret_values
from persys_core.model.spec_changes import spec_changes
from persys_core.model.states import WorkloadType

LONG = 200_000
MEASURABLE = 0.001
"""Seconds of CPU below which a ratio is noise."""


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("at redis://u:p/a@ss@h/0 now", "at redis://***@h/0 now"),
        ("http://h/a and amqp://u:p@x@h", "http://h/a and amqp://***@h"),
        ("env PASSWORD=hunter2 x", "env PASSWORD=*** x"),
        ("password=abc, user=x", "password=***, user=x"),
        ("GET /v2?token=abc&scope=pull", "GET /v2?token=***&scope=pull"),
        ("AccountName=a;AccountKey=ab+/==;End=core", "AccountName=a;AccountKey=***;End=core"),
        ("--db-password='a b' -v", "--db-password='***' -v"),
        ('API_TOKEN="a \\"b" x', 'API_TOKEN="***" x'),
        ("SIGNING_KEY=abc COOKIE=d DSN=e", "SIGNING_KEY=*** COOKIE=*** DSN=***"),
        ('{"password": "hunter2", "a": 1}', '{"password": "***", "a": 1}'),
        (r"{\"password\":\"hunter2\",\"a\":1}", r"{\"password\":\"***\",\"a\":1}"),
        ("password = hunter2", "password = ***"),
        ("Authorization: Bearer abc\nnext", "Authorization: ***\nnext"),
        ("env GITHUB_PAT=abc APP_PW=d PATH=/bin", "env GITHUB_PAT=*** APP_PW=*** PATH=/bin"),
        ("jwt=abc&sshkey=d&private=e", "jwt=***&sshkey=***&private=***"),
    ],
)
def test_secrets_of_a_text_are_masked(text: str, clean: str) -> None:
    """A04: URL passwords up to the last @, and values of secret names; cleaning twice is once."""
    assert scrubbed(text, ()) == clean
    assert scrubbed(clean, ()) == clean
    assert masked({"note": text}) == {"note": clean}


@pytest.mark.parametrize(
    ("secret", "clean"),
    [
        ("a", "cat: *** port (at 8080) is not what cat_1 was; user=at, 'cat' 10 ms"),
        ("at", "cat: a port (*** 8080) is not what cat_1 was; user=***, 'cat' 10 ms"),
        ("cat", "***: a port (at 8080) is not what cat_1 was; user=at, '***' 10 ms"),
        ("1", "cat: a port (at 8080) is not what cat_1 was; user=at, 'cat' 10 ms"),
        ("8080", "cat: a port (at ***) is not what cat_1 was; user=at, 'cat' 10 ms"),
        ("what", "cat: a port (at 8080) is not *** cat_1 was; user=at, 'cat' 10 ms"),
    ],
)
def test_short_secrets_are_masked_where_they_stand_alone(secret: str, clean: str) -> None:
    """Up to three characters are a part of many words by chance; the rest stays readable."""
    text = "cat: a port (at 8080) is not what cat_1 was; user=at, 'cat' 10 ms"
    assert scrubbed(text, [secret]) == clean


def test_a_mask_is_not_masked() -> None:
    """Whatever the password is."""
    assert scrubbed("with sesame", ["*", "**", "***", "sesame", ""]) == f"with {MASK}"


def test_a_secret_that_holds_a_short_one_is_masked_whole() -> None:
    """The longest goes first."""
    assert scrubbed("a-b-secret b", ["a-b-secret", "b"]) == f"{MASK} {MASK}"


@pytest.mark.parametrize(
    "text",
    [
        "key=abc and a foreign key",
        "no key",
        "invalid token: unexpected EOF",
        "tests passed=3, author=me",
        "password == none",
        "PASSWORD= is required",
        "monkey=1",
        "image nginx@sha256:abc from http://h/x",
        "mail to a@b",
        "PATTERN=a COMPAT=2 pat: b, private-network=c",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    """A text without secrets is not changed."""
    assert scrubbed(text, ()) == text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("DB_PASSWORD", "SIGNING_KEY", "X_KEY", "COOKIE", "SENTRY_DSN")),
        *((name, True) for name in ("accountKey", "AUTHORIZATION", "api-key", "TOKENS", "PASS")),
        *((name, True) for name in ("GITHUB_PAT", "PAT", "SSH_PEM", "pem", "JWT", "JWT_2", "pw")),
        *((name, True) for name in ("APP_PW", "SSHKEY", "SSH_KEY", "PRIVATE", "tls.private")),
        *((name, True) for name in ("PRIVATE_KEY", "DB_PWD", "pwd")),
        *((name, False) for name in ("key", "KEY", "MONKEY", "keyboard", "AUTHOR", "name")),
        *((name, False) for name in ("PATH", "PATTERN", "COMPAT", "PWD", "OLDPWD", "PATCH")),
        *((name, False) for name in ("PWM", "OPEMU", "PRIVATE_IP", "PRIVATEER")),
    ],
)
def test_names_of_secrets(name: str, is_secret: bool) -> None:
    """Names of keys, cookies and data sources are secret; ``key`` alone is a word, and the short
    names count between separators only."""
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    "spelled",
    [
        lambda value: value,
        lambda value: value.strip(),
        json.dumps,
        lambda value: json.dumps(json.dumps(value)),
        lambda value: json.dumps(value, ensure_ascii=False),
        repr,
        lambda value: value.replace("\n", "\\n"),
        lambda value: value.replace("\n", "\r\n"),
    ],
)
@pytest.mark.parametrize("secret", ['-----BEGIN\nline "one"\nlïne2\n', "a\tb'c\n", "no-newline"])
def test_every_spelling_of_a_secret_is_masked(spelled, secret: str) -> None:  # type: ignore[no-untyped-def]
    """A secret of several lines is found as it is and as others write it inside quotes."""
    known = secret_env_values({"PRIVATE_KEY": secret})
    echoed = f"got {spelled(secret)} here"
    for text in (scrubbed(echoed, known), _replaced(echoed, known)):
        assert not any(part in text for part in ("BEGIN", "line", "2", "b'c", "newline"))


KEYS = [
    f"-----BEGIN {kind}-----\nMIIEabc\nDEF==\n-----END {kind}-----"
    for kind in ("PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")
]


@pytest.mark.parametrize("key", [*KEYS, KEYS[0].partition("-----END")[0]])
def test_a_private_key_is_masked_whatever_its_name(key: str) -> None:
    """In variables, in commands, and in every text, also in one that was cut off."""
    assert masked({"TLS": f"a\n{key}\n", "PATH": "/bin"}) == {"TLS": MASK, "PATH": "/bin"}
    assert masked_command(("run", "--tls", f"x={key}", "-v")) == ("run", "--tls", MASK, "-v")
    assert secret_env_values({"TLS": key}) >= {key, json.dumps(key.strip())[1:-1]}
    assert scrubbed(f"got {key}", ()) == f"got {MASK}"
    assert scrubbed(json.dumps(f"got {key}"), ()).startswith(f'"got {MASK}')
    assert "MIIE" not in scrubbed(f"a {key} b {key} c", ())


def _container(body: ContainerSpec, metadata: dict[str, str] | None = None) -> WorkloadSpec:
    return WorkloadSpec(WorkloadType.CONTAINER, Resources(), body, metadata or {})


def test_what_stands_around_a_private_key_stays() -> None:
    """A text is masked from the beginning of each key to its end."""
    assert scrubbed(f"a {KEYS[0]} b {KEYS[3]} c", ()) == f"a {MASK} b {MASK} c"


@pytest.mark.parametrize(
    "spec",
    [
        _container(ContainerSpec("a", env={"TLS": KEYS[0]})),
        _container(ContainerSpec("a", command=("a", KEYS[0]))),
        _container(ContainerSpec("a"), {"note": KEYS[0]}),
    ],
)
def test_no_view_or_diff_shows_a_private_key(spec: WorkloadSpec) -> None:
    """Wherever it stands in a specification."""
    shown = [repr(spec), *(change.new for change in spec_changes(None, spec))]
    assert not any("MIIE" in text for text in shown)
    assert KEYS[0] in secret_values(spec)


def _replaced(text: str, known: frozenset[str]) -> str:
    for each in sorted(known, key=len, reverse=True):
        text = text.replace(each, "***")
    return text


def test_secrets_inside_values_are_known() -> None:
    """Passwords in URLs, as written and decoded, and keys in connection strings."""
    known = secret_env_values(
        {"A": "redis://u:p/w@rd@h", "B": "amqp://u:p%40x@h", "C": "Host=x;AccountKey=abcdef=="}
    )
    assert {"p/w@rd", "p%40x", "p@x", "abcdef=="} <= known
    assert not known & {"x", "u", "h", "Host"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    ["a", "pass", "=", "a=", "a://", "://@", "@", "password=", "password=x ", 'password="',
     "cookie:", "_key", "auth",
     "-----BEGIN ", "-----BEGIN PRIVATE KEY", "-----BEGIN PRIVATE KEY-----END ", "pat", "_pw=",
     "private=", "token=x&a", "abcDEF1+/", '"\\', "token=" + "," * 99, "x: y=z quick fox "],
)  # fmt: skip
def test_long_texts_are_cleaned_quickly(piece: str) -> None:
    """Four times the text takes about four times as long, whatever it repeats: never sixteen."""
    assert _cost(piece, LONG) < max(_cost(piece, LONG // 4), MEASURABLE) * 10


def _cost(piece: str, length: int) -> float:
    """The least CPU time of three tries, so that what else runs here does not count."""
    text = piece * (length // len(piece))
    took = []
    for ending in ("", "=", "@"):
        began = time.thread_time()
        scrubbed(text + ending, ())
        took.append(time.thread_time() - began)
    return min(took)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["--token ", "--token x ", "-a ", "--", "-- '", "a ", "-a \t"])
def test_long_commands_are_cleaned_quickly(piece: str) -> None:
    """As above, in one word and in many."""
    for separator in (None, " "):
        long, short = (
            min(_cost_of_command(piece, separator, length) for _ in range(2))
            for length in (LONG, LONG // 4)
        )
        assert long < max(short, MEASURABLE) * 10


def _cost_of_command(piece: str, separator: str | None, length: int) -> float:
    text = piece * (length // len(piece))
    words = (text,) if separator is None else tuple(text.split(separator))
    began = time.thread_time()
    masked_command(words)
    return time.thread_time() - began
