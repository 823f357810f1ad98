"""What each service of an application may have, beside what the whole asks for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from persys_agent.runtimes.compose.caps import capped
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
    higher = capped({"cpu_quota": "40000", "cpu_period": 20_000}, ASKED)
    assert higher["cpu_quota"] == 10_000
    assert "cpus" not in higher


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
