"""What each service of an application may have, beside what the whole asks for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from persys_agent.runtimes.compose.caps import capped, copies
from persys_agent.runtimes.docker.documents import Document
from persys_core.model.resources import Resources

ASKED = Resources.of(cpu_millicores=500, memory_mb=64)
WHOLE = {"cpus": 0.5, "mem_limit": str(64 << 20), "memswap_limit": str(64 << 20)}


def memory(size: int) -> dict[str, object]:
    return {"mem_limit": str(size), "memswap_limit": str(size)}


def limits(**words: object) -> dict[str, object]:
    return {"deploy": {"resources": {"limits": words}}}


@pytest.mark.parametrize(
    ("service", "laid"),
    [
        ({}, WHOLE),
        ({"cpus": 4, "mem_limit": "1g"}, WHOLE),
        ({"cpus": "0.25"}, {**WHOLE, "cpus": 0.25}),
        ({"mem_limit": "32m"}, {**WHOLE, **memory(32 << 20)}),
        ({"mem_limit": "32 MiB"}, {**WHOLE, **memory(32 << 20)}),
        ({"mem_limit": 16 << 20}, {**WHOLE, **memory(16 << 20)}),
        ({"mem_limit": "0", "cpus": 0}, WHOLE),
        ({"mem_limit": "much", "cpus": "all"}, WHOLE),
        ({"mem_reservation": "1g"}, {**WHOLE, "mem_reservation": str(64 << 20)}),
        ({"mem_reservation": "1m"}, WHOLE),
    ],
)
def test_a_service_has_at_most_the_whole(
    service: Mapping[str, object], laid: Mapping[str, object]
) -> None:
    """Its own lower limits stay, higher ones and none become the whole; never with swap."""
    assert capped(service, ASKED) == laid


def test_a_quota_stays_a_quota() -> None:
    """The Engine takes no container that has cores and a quota."""
    assert capped({"cpu_quota": 20_000}, ASKED)["cpu_quota"] == 20_000
    assert "cpu_period" not in capped({"cpu_quota": 20_000}, ASKED)
    higher = capped({"cpu_quota": "40000", "cpu_period": 20_000}, ASKED)
    assert (higher["cpu_quota"], higher["cpu_period"]) == (50_000, 100_000)
    assert "cpus" not in higher


@pytest.mark.parametrize(
    ("period", "quota"),
    [
        ("1ms", 50_000),  # 200 of them in a quota of 200 ms
        ("0.4s", 50_000),
        ("1s", 20_000),
        ("1s 600ms", 50_000),  # nothing that Compose takes: what it makes of it is capped too
        ("1s600ms", 12_500),
        ("1600000us", 12_500),
        ("1h", 1000),
        (400_000, 50_000),
        ("800000", 25_000),
        ("soon", 50_000),
    ],
)
def test_a_period_may_be_a_time(period: object, quota: int) -> None:
    """As Compose v1 reads it; the one that counts is always ours."""
    laid = capped({"cpu_quota": 200_000, "cpu_period": period}, ASKED)
    assert (laid["cpu_quota"], laid["cpu_period"]) == (quota, 100_000)


def test_containers_of_a_service_share_the_whole() -> None:
    """Where nothing holds them together; own limits that are lower stay."""
    laid = capped({"mem_limit": "20m", "cpus": 3}, ASKED, sharing=4)
    assert (laid["cpus"], laid["mem_limit"]) == (0.125, str(16 << 20))
    assert capped({"mem_limit": "8m"}, ASKED, sharing=4)["mem_limit"] == str(8 << 20)
    assert capped({"cpu_quota": 90_000}, ASKED, sharing=5)["cpu_quota"] == 10_000
    assert capped({}, ASKED, sharing=400)["cpus"] == 0.01


@pytest.mark.parametrize(
    ("service", "least", "most"),
    [
        ({}, 1, 1),
        ({"scale": 3}, 3, 3),
        ({"scale": "0"}, 0, 0),
        ({"deploy": {"replicas": "12"}}, 12, 12),
        ({"scale": 2, "deploy": {"replicas": 5}}, 2, 5),
        ({"scale": None, "deploy": {"replicas": None}}, 1, 1),
    ],
)
def test_containers_of_a_service_are_counted(service: Document, least: int, most: int) -> None:
    """By either key, also as text."""
    assert copies(service) == (least, most)


@pytest.mark.parametrize("value", ["0o17", "3.0", -1, True, [3], "9" * 5000, ""])
def test_what_is_no_count_is_refused(value: object) -> None:
    """It could be another number for Compose."""
    with pytest.raises(ValueError, match=r'deploy.replicas: ".*" is no whole number'):
        copies({"deploy": {"replicas": value}})


def test_both_spellings_say_the_same() -> None:
    """Compose refuses a file whose limits differ from those of its ``deploy``."""
    own = {**limits(cpus="0.1", memory="8m"), "mem_limit": "8m"}
    assert capped(own, ASKED) == {
        "cpus": 0.1,
        **memory(8 << 20),
        **limits(cpus="0.1", memory=str(8 << 20)),
    }
    odd = capped(limits(cpus="0.1234567"), ASKED)
    assert odd["cpus"] == 0.1234567
    assert odd["deploy"] == limits(cpus="0.1234567", memory=str(64 << 20))["deploy"]
    reserved = {"deploy": {"resources": {"reservations": {"memory": "1g"}}}}
    assert capped(reserved, ASKED)["deploy"] == {
        "resources": {"reservations": {"memory": str(64 << 20)}}
    }


def test_what_is_not_asked_for_is_not_limited() -> None:
    """Older schedulers tell no resources of an application."""
    assert capped({"cpus": 1}, Resources()) == {}
    assert capped({}, Resources.of(memory_mb=64)) == memory(64 << 20)


@pytest.mark.parametrize(
    "service",
    [
        {"cpu_quota": float("inf"), "cpu_period": float("inf")},
        {"cpu_quota": 1000, "cpu_period": ".inf"},
        {"mem_limit": "9" * 400, "mem_reservation": "9" * 400 + "g"},
        {"cpus": "nan", "deploy": {"resources": {"limits": {"memory": "9" * 400}}}},
    ],
)
def test_amounts_without_an_end_are_none(service: dict[str, object]) -> None:
    """They fall to the whole, as no number at all does."""
    laid = capped(service, Resources.of(cpu_millicores=500, memory_mb=64))
    assert laid.get("cpus", 0.5) == 0.5
    assert laid["mem_limit"] == str(64 << 20)
