"""What is read of a Compose file, what is laid over it, and what a project is called."""

from __future__ import annotations

import json
import re

import pytest

from persys_agent.runtimes.compose.application import application, overlay, project
from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, SpecBody, WorkloadSpec
from persys_core.model.states import WorkloadType

OWNER = Owner("n", "c")


def order(source: str | SpecBody, **metadata: str) -> Order:
    body = ComposeSpec(inline_yaml=source) if isinstance(source, str) else source
    return Order("w", "r$1", "h", WorkloadSpec(WorkloadType.COMPOSE, Resources(), body, metadata))


def test_no_two_projects_are_one() -> None:
    """Ids that look alike to Compose, and owners that share an id, have projects of their own."""
    ids = [
        "a.b",
        "a-b",
        "A-b",
        "a--b",
        "a_b",
        "a" * 60,
        "a" * 61,
    ]
    names = [project(OWNER, each) for each in ids]
    names += [project(Owner("m", "c"), "a.b"), project(Owner("n"), "a.b"), project(OWNER, "...")]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,60}", each) for each in names)


def test_services_and_volumes_are_known() -> None:
    """The order of services, which of them run without being asked for, and which volumes are
    Compose's to make."""
    source = """
version: "3.9"
services:
  web: {image: a}
  tool: {image: b, profiles: [debug]}
  none: {image: c, deploy: {replicas: 0}}
  idle: {image: d, scale: 0}
volumes:
  data:
  shared: {external: true}
"""
    app = application(order(source), allow_privileged=False)
    assert app.services == ("web", "tool", "none", "idle")
    assert app.expected == {"web"}
    assert app.volumes == ("data",)
    assert app.version == "3.9"


def test_the_overlay_marks_everything() -> None:
    """Services carry owner and revision, volumes the owner alone; no label is replaced in."""
    app = application(order("services: {a: {}, b: {}}\nvolumes: {d: }"), allow_privileged=False)
    laid = json.loads(overlay(app, OWNER, order("")))
    labels = laid["services"]["b"]["labels"]
    assert labels["persys.revision_id"] == "r$$1"
    assert labels["persys.spec_hash"] == "h"
    assert labels["persys.node_id"] == "n"
    assert labels["persys.exec"] == "false"
    assert laid["services"]["a"]["labels"]["persys.exec"] == "true"
    assert "persys.revision_id" not in laid["volumes"]["d"]["labels"]
    assert laid["volumes"]["d"]["labels"]["persys.workload_id"] == "w"
    assert "version" not in laid


def test_the_service_for_commands_can_be_named() -> None:
    """The metadata chooses it among those that there are."""
    app = application(order("services: {a: {}, b: {}}"), allow_privileged=False)
    chosen = order("", **{"persys.agent.exec_service": "b"})
    laid = json.loads(overlay(app, OWNER, chosen))
    assert laid["services"]["b"]["labels"]["persys.exec"] == "true"
    with pytest.raises(RuntimeFailedError, match='"c" is not one of a, b'):
        overlay(app, OWNER, order("", **{"persys.agent.exec_service": "c"}))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("services:\n\ta: 1", "line 2"),
        ("services:\n  a: {}\n b: 1", "line 3"),
        ("- a", "no mapping"),
        ("services: [a]", "no mapping"),
        ("services: {a: text}", "no mapping"),
        ("volumes: {}", "no services"),
        (" ", "no Compose file"),
        ("a: !!python/object/apply:os.system [x]", "no YAML"),
        ("services: {a: {privileged: true}}", "not allowed"),
        ("services: {a: {privileged: '${X}'}}", "not allowed"),
        ("#" * (1024 * 1024 + 1), "more than"),
        (ContainerSpec("a"), "nothing that Compose runs"),
        (ComposeSpec(git_repo="x"), "repository"),
    ],
)
def test_what_is_no_application_is_refused(source: str | SpecBody, told: str) -> None:
    """With the line where the file itself is broken."""
    with pytest.raises(RuntimeFailedError, match=told) as raised:
        application(order(source), allow_privileged=False)
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_an_operator_may_allow_privileges() -> None:
    """As for single containers."""
    app = application(order("services: {a: {privileged: true}}"), allow_privileged=True)
    assert app.services == ("a",)
