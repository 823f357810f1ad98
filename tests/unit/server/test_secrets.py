"""Secrets that an agent echoes: masked in every place and spelling, and quickly."""

from __future__ import annotations

import json
import time

import pytest

from persys_core.model.secrets import (
    is_secret_name,
    masked,
    masked_command,
    scrubbed,
    secret_env_values,
)

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
    ],
)
def test_secrets_of_a_text_are_masked(text: str, clean: str) -> None:
    """A04: URL passwords up to the last @, and values of secret names; cleaning twice is once."""
    assert scrubbed(text, ()) == clean
    assert scrubbed(clean, ()) == clean
    assert masked({"note": text}) == {"note": clean}


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
        *((name, False) for name in ("key", "KEY", "MONKEY", "keyboard", "AUTHOR", "name")),
    ],
)
def test_names_of_secrets(name: str, is_secret: bool) -> None:
    """Names of keys, cookies and data sources are secret; ``key`` alone is a word."""
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


@pytest.mark.parametrize(
    "piece",
    ["a", "pass", "=", "a=", "a://", "://@", "@", "password=", "password=x ", 'password="',
     "cookie:", "_key", "auth",
     "token=x&a", "abcDEF1+/", '"\\', "token=" + "," * 99, "x: y=z quick fox "],
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
