"""What services of a Compose file have of each other."""

from __future__ import annotations

import time

import pytest

from persys_agent.runtimes.compose.inheritance import MOST_ENTRIES, MOST_SERVICES, with_inherited
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from tests.unit.agent.runtimes.compose.test_application import read


def test_a_service_has_what_it_inherits() -> None:
    """Over several steps, lists of all; a circle ends."""
    services: dict[str, dict[str, object]] = {
        "a": {"cap_add": ["X"], "pid": "host", "deploy": {"x": 1}},
        "b": {"extends": {"service": "a"}, "cap_add": ["Y"], "deploy": {"y": 2}},
        "c": {"extends": "b", "pid": ""},
        "d": {"extends": "e"},
        "e": {"extends": "d", "tty": True},
    }
    found = with_inherited(services)
    assert list(found) == list(services)
    c = found["c"]
    assert (c["cap_add"], c["pid"], c["deploy"]) == (["X", "Y"], "", {"x": 1, "y": 2})
    assert found["d"]["tty"] is True


def test_mappings_are_joined_at_every_depth() -> None:
    """A limit that is inherited counts beside a reservation of the service itself; and what is
    none takes nothing away."""
    limits = {"cpus": "1.5", "memory": "32m"}
    services: dict[str, dict[str, object]] = {
        "base": {"deploy": {"resources": {"limits": limits}}, "cpus": 1},
        "a": {
            "extends": "base",
            "cpus": None,
            "deploy": {"resources": {"limits": {"cpus": "2"}, "reservations": {"memory": "16m"}}},
        },
    }
    assert with_inherited(services)["a"]["deploy"] == {
        "resources": {
            "limits": {"cpus": "2", "memory": "32m"},
            "reservations": {"memory": "16m"},
        }
    }
    assert with_inherited(services)["a"]["cpus"] == 1


def test_what_is_inherited_from_far_away_counts() -> None:
    """However many services stand between."""
    line: dict[str, dict[str, object]] = {
        f"s{each}": {"extends": f"s{each - 1}"} for each in range(1, 40)
    }
    assert with_inherited({"s0": {"pid": "host"}, **line})["s39"]["pid"] == "host"


def aliased(services: int, entries: int, key: str, item: str, *, extend: bool) -> str:
    """A short file, in which every service has the same long list."""
    names = range(services)
    bases = [f"extends: s{each - 1}, " if extend and each else "" for each in names]
    return "\n".join(
        [
            f"x-l: &l [{', '.join([item] * entries)}]",
            "services:",
            *(f"  s{each}: {{{bases[each]}image: i, {key}: *l}}" for each in names),
        ]
    )


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (aliased(100, 3000, "volumes", "/run:/x", extend=False), f"more than {MOST_ENTRIES}"),
        (aliased(400, 9000, "cap_add", "KILL", extend=False), f"more than {MOST_ENTRIES}"),
        (aliased(200, 9000, "expose", "~", extend=True), f"more than {MOST_ENTRIES}"),
        (aliased(MOST_SERVICES + 1, 1, "expose", "~", extend=False), f"{MOST_SERVICES + 1} serv"),
        (
            "x: &x {a: *x}\ny: &y {a: *y}\nservices:\n  a: {image: i, labels: *x}\n"
            "  b: {extends: a, labels: *y}",
            "nested too deeply",
        ),
    ],
)
def test_a_short_file_cannot_stand_for_no_end_of_entries(source: str, told: str) -> None:
    """Aliases and inheritance multiply up to a limit, and take neither time nor memory."""
    began = time.process_time()
    with pytest.raises(RuntimeFailedError, match=told) as raised:
        read(source)
    assert raised.value.code is FailureCode.INVALID_SPEC
    assert time.process_time() - began < 3


def test_one_place_is_looked_up_once() -> None:
    """As many entries as may be take no time, and are told of in a few words."""
    count = MOST_ENTRIES // 20
    began = time.process_time()
    read(aliased(20, count, "volumes", "/srv/data:/x", extend=False))
    with pytest.raises(RuntimeFailedError, match="and 10 more") as raised:
        read(aliased(20, count, "volumes", "/run:/x", extend=False))
    assert len(str(raised.value)) < 1000
    assert time.process_time() - began < 3
