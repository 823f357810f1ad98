"""Quantities: exact integers or an error that a person understands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persysctl.manifest.units import (
    parse_cpu_millicores,
    parse_disk_gb,
    parse_duration_seconds,
    parse_memory_mb,
)


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        ("0.5Gi", 512),
        ("256Mi", 256),
        ("512MB", 512),
        ("1Gi", 1024),
        ("1 GiB", 1024),
        ("2048Ki", 2),
        ("1.5GB", 1536),
        ("0", 0),
        ("1Ti", 1024 * 1024),
        ("10000000000Mi", 10**10),
    ],
)
def test_memory_is_exact(text: str, mb: int) -> None:
    """A01: a size with its unit becomes exactly that many MB; 0.5Gi is 512 MB, never 0."""
    assert parse_memory_mb(text) == mb


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("256m", "a thousandth"),
        ("-1", "negative"),
        ("50E", "powers of 1000 or of 1024"),
        ("50Ei", "too large"),
        ("NaN", "not a size"),
        ("inf", "not a size"),
        ("1e400", "exponent"),
        (str(2**63), "no unit"),
        (f"{2**63}Mi", "too large; at most 10000000000Mi is accepted"),
        ("true", "not a size"),
        ("", "empty"),
        ("  ", "empty"),
        ("256", "no unit"),
        ("0256Mi", "octal"),
        ("1_000Mi", "not a size"),
        ("0x10Mi", "not a size"),
        ("1.5.5Gi", "not a size"),
        ("0.3Mi", "nearest are 0Mi and 1Mi"),
        ("0.1Gi", "102Mi and 103Mi"),
        ("1Mib", "did you mean 'MiB'"),
        ("256M", "powers of 1000 or of 1024"),
        ("٣Mi", "not a size"),
        ("9" * 100_000 + "Mi", "not a size"),
    ],
)
def test_wrong_memory_is_refused(text: str, part: str) -> None:
    """A01: a wrong unit, a sign, an exponent or a huge value is an error that says what it is."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_memory_mb(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "millicores"),
    [("500m", 500), ("0.5", 500), ("2", 2000), ("0", 0), ("0.001", 1), ("100000", 10**8)],
)
def test_cpu_is_exact(text: str, millicores: int) -> None:
    """Cores, parts of cores and millicores become millicores."""
    assert parse_cpu_millicores(text) == millicores


@pytest.mark.parametrize("text", ["0.0001", "1.5m", "-2", "2Gi", "1e3", "", "NaN", "100001", "2k"])
def test_wrong_cpu_is_refused(text: str) -> None:
    """A01: what is not a whole number of millicores within bounds is refused."""
    with pytest.raises(ValueError, match=r"."):
        parse_cpu_millicores(text)


def test_disk_counts_in_gb() -> None:
    """Disks are whole GB; less is refused instead of being rounded to nothing."""
    assert [parse_disk_gb(text) for text in ("10Gi", "10GB", "1Ti", "2048Mi")] == [10, 10, 1024, 2]
    with pytest.raises(ValueError, match="nearest are 0Gi and 1Gi"):
        parse_disk_gb("500Mi")


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("2m", 120), ("250ms", 0.25), ("90", 90), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    """Durations take a unit; bare numbers are seconds."""
    assert parse_duration_seconds(text) == seconds


@given(st.integers(min_value=0, max_value=10**10))
def test_whole_mb_survive(mb: int) -> None:
    """A01: every acceptable number of MB comes back as itself."""
    assert parse_memory_mb(f"{mb}Mi") == mb


def test_the_most_cpu_is_told_in_cores() -> None:
    """Nobody counts the zeros of millicores."""
    with pytest.raises(ValueError, match=r"at most 100000 cores is accepted"):
        parse_cpu_millicores("100001")


@pytest.mark.parametrize("parse", [parse_cpu_millicores, parse_memory_mb, parse_disk_gb])
@given(text=st.text(max_size=20))
def test_any_text_is_a_number_or_a_value_error(parse: Callable[[str], int], text: str) -> None:
    """A01: no text makes a negative or fractional amount, or another kind of error."""
    try:
        amount = parse(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - both ways are right
    else:
        assert isinstance(amount, int)
        assert amount >= 0
