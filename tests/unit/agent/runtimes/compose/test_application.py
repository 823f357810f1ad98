"""What is read of a Compose file, what is laid over it, and what a project is called."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from persys_agent.runtimes.compose.application import (
    Application,
    application,
    check_resolved,
    overlay,
    project,
)
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.compose.sums import Hold
from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, SpecBody, WorkloadSpec
from persys_core.model.states import WorkloadType

OWNER = Owner("n", "c")
FOLDER = Path("/nonexistent/compose/p-1")


def order(source: str | SpecBody, **metadata: str) -> Order:
    body = ComposeSpec(inline_yaml=source) if isinstance(source, str) else source
    return Order("w", "r$1", "h", WorkloadSpec(WorkloadType.COMPOSE, Resources(), body, metadata))


def read(source: str | SpecBody, *, allow: bool = False, exec_service: str = "") -> Application:
    asked = order(source, **{"persys.agent.exec_service": exec_service})
    return application(asked, FOLDER, ComposeSettings(allow_privileged=allow))


def laid_over(app: Application, asked: Resources = Resources(), parent: str = "") -> Any:
    return json.loads(overlay(app, OWNER, order(""), Hold("p-1", asked, parent)))


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
    app = read(source)
    assert tuple(app.services) == ("web", "tool", "none", "idle")
    assert app.expected == {"web"}
    assert app.volumes == {"data": {}}
    assert app.version == "3.9"


def test_the_overlay_marks_everything() -> None:
    """Services carry owner and revision, volumes the owner alone; no label is replaced in."""
    laid = laid_over(read("services: {a: {}, b: {}}\nvolumes: {d: }"))
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
    two = "services: {a: {}, b: {}}"
    laid = laid_over(read(two, exec_service="b"))
    assert laid["services"]["b"]["labels"]["persys.exec"] == "true"
    with pytest.raises(RuntimeFailedError, match='"c" is not one of a, b'):
        read(two, exec_service="c")


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
        (
            "services:\n  on: {pid: host}\n  'True': {}",
            'the key on in line 2 is no text: write "on"',
        ),
        ("services: {0x1: {}}", "the key 0x1 in line 1"),
        ("services: {a: {}, 'a': {}}", 'the key "a" in line 1 was there before'),
        ("services: {a: {labels: {x: 1, x: 2}}}", 'the key "x"'),
        ("services: {a: {}, ? [b] : {}}", "a key in line 1 is no text"),
        ("services: {a: {'<<': {pid: host}}}", "the key <<"),
        ("a: !!python/object/apply:os.system [x]", "no YAML"),
        ("services: {a: {privileged: true}}", "not allowed"),
        ("services: {a: {privileged: '${X}'}}", "not allowed"),
        ("#" * (1024 * 1024 + 1), "more than"),
        ("services: {a: {}}\ninclude: [b.yaml]", "names other files (include)"),
        ("services: {a: {extends: {file: b.yaml, service: c}}}", "services.a.extends.file"),
        (ContainerSpec("a"), "nothing that Compose runs"),
        (ComposeSpec(git_repo="x"), "repository"),
    ],
)
def test_what_is_no_application_is_refused(source: str | SpecBody, told: str) -> None:
    """With the line where the file itself is broken."""
    with pytest.raises(RuntimeFailedError, match=re.escape(told)) as raised:
        read(source)
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_an_operator_may_allow_privileges() -> None:
    """As for single containers."""
    app = read("services: {a: {privileged: true}}", allow=True)
    assert tuple(app.services) == ("a",)


def test_no_service_has_more_than_the_whole() -> None:
    """Services are capped, stand below the parent, and say what they are held to, whatever labels
    of theirs say; nothing is limited where nothing is asked for."""
    app = read("services: {a: {labels: {persys.cgroup_parent: /}}, b: {cpus: 0.1}}")
    laid = laid_over(app, Resources.of(cpu_millicores=500, memory_mb=64), "/persys/p-1")
    assert (laid["services"]["a"]["cpus"], laid["services"]["b"]["cpus"]) == (0.5, 0.1)
    assert laid["services"]["b"]["mem_limit"] == str(64 << 20)
    assert laid["services"]["a"]["cgroup_parent"] == "/persys/p-1"
    labels = laid["services"]["a"]["labels"]
    assert labels["persys.cgroup_parent"] == "/persys/p-1"
    assert (labels["persys.cpu_millicores"], labels["persys.memory_mb"]) == ("500", "64")
    bare = laid_over(app)["services"]["a"]
    assert set(bare) == {"labels"}
    assert bare["labels"]["persys.cgroup_parent"] == ""


def test_containers_of_one_service_share_the_whole() -> None:
    """Where there is no group above them; with one it is not for them to share."""
    app = read("services: {a: {scale: 3}, b: {deploy: {replicas: 2}}, c: {scale: 0}}")
    asked = Resources.of(cpu_millicores=600, memory_mb=96)
    services = laid_over(app, asked)["services"]
    assert [services[each]["cpus"] for each in "abc"] == [0.2, 0.3, 0.6]
    assert services["a"]["mem_limit"] == str(32 << 20)
    assert laid_over(app, asked, "/persys/p-1")["services"]["a"]["cpus"] == 0.6
    assert app.expected == {"a", "b"}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("services: {a: {scale: 12}}", "services.a: a memory limit of 5592405 bytes, of 64 MB for"),
        ("services: {a: {mem_limit: 5m}}", "services.a: a memory limit of 5242880 bytes is less"),
        ("services: {a: {scale: many}}", 'services.a.scale: "many" is no whole number'),
    ],
)
def test_less_memory_than_a_container_can_have_is_refused(source: str, told: str) -> None:
    """No other try could help."""
    with pytest.raises(RuntimeFailedError, match=told) as raised:
        laid_over(read(source), Resources.of(memory_mb=64))
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_images_are_those_that_will_run() -> None:
    """Each once, with variables replaced; what nobody starts is not pulled."""
    body = ComposeSpec(
        inline_yaml="services: {a: {image: 'x:${V:-1}'}, b: {extends: a}, c: {image: y, scale: 0}}"
    )
    assert read(body).images == ("x:1",)


def test_aliases_do_not_multiply() -> None:
    """A file that is short and stands for no end of text is read at once, or refused."""
    lines = ["x0: &a0 [x, x]", *(f"x{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    bomb = "\n".join([*lines, "services: {a: {image: x, labels: *a59, mem_limit: *a59}}"])
    assert laid_over(read(bomb), Resources.of(memory_mb=6))["services"]["a"]["mem_limit"]
    with pytest.raises(RuntimeFailedError, match="devices: a list or mapping"):
        read(bomb.replace("labels", "devices"))
    assert read("x: &x [*x]\nservices: {a: {image: y}}").images == ("y",)


def test_variables_without_an_end_take_no_time() -> None:
    """As long as a file may be."""
    began = time.monotonic()
    read("services: {a: {image: '" + "${a:-" * 100_000 + "'}}")
    assert time.monotonic() - began < 2


def test_merge_keys_are_understood() -> None:
    """They are no text, and the only keys that need not be one."""
    app = read("x: &x {image: y}\nservices: {a: {<<: *x}, b: {<<: [*x], image: z}}")
    assert [each["image"] for each in app.services.values()] == ["y", "z"]


@pytest.mark.parametrize(
    ("service", "told"),
    [
        ("volumes: [{type: bind, source: /nonexistent/compose/q-2, target: /x}]", "another appl"),
        ("volumes: ['/nonexistent/compose/q-2:/x:rw']", "another application"),
        ("volumes: ['/nonexistent:/x:rw']", "the agent keeps its own data there"),
        ("build: {context: /nonexistent/compose/q-2}", "another application"),
        ("pid: host", "a: pid: host"),
        ("cgroup_parent: /other", "a: cgroup_parent: /other"),
        ("on: x", "the key on in line 1"),
        ("image: '" + "x" * 2 * 1024 * 1024 + "'", "stands for more than"),
    ],
)
def test_what_compose_understands_is_held_to_the_same(service: str, told: str) -> None:
    """However the file had said it."""
    hold = Hold("p-1", Resources(), "/persys/p-1")
    source = f"services: {{a: {{{service}}}}}"
    with pytest.raises(RuntimeFailedError, match=told) as raised:
        check_resolved(source, FOLDER, hold, ComposeSettings(), "unix:///x")
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_what_is_laid_over_is_no_way_out() -> None:
    """Our own parent, paths that were made whole, and dollars that are written twice."""
    hold = Hold("p-1", Resources(), "/persys/p-1")
    source = (
        "name: p-1\nservices: {a: {cgroup_parent: /persys/p-1, command: ['$${A'],"
        " volumes: [{type: bind, source: /nonexistent/compose/p-1/data, target: /x}],"
        " build: {context: /nonexistent/compose/p-1, dockerfile: Dockerfile}}}"
    )
    check_resolved(source, FOLDER, hold, ComposeSettings(), "unix:///x")


@pytest.mark.parametrize(
    "source",
    [
        "services: {a: {extends: {file: '${DOCKER_HOST:+../q/c.yaml}', service: b}}}",
        "services: {a: {}}\ninclude: '${DOCKER_HOST:+../q/c.yaml}'",
    ],
)
def test_no_variable_hides_another_file(source: str) -> None:
    """Compose has some that a spec has not."""
    with pytest.raises(RuntimeFailedError, match="names other files"):
        read(source)


def test_volumes_stay_what_the_file_says() -> None:
    """Compose v1 takes the last word about a volume for all of it; variables are Compose's."""
    options = "{type: nfs, o: 'addr=$A', device: ':/x', size: 1}"
    source = f"services: {{a: {{}}}}\nvolumes: {{v: {{driver: local, driver_opts: {options}}}}}"
    volume = laid_over(read(source))["volumes"]["v"]
    told = {"type": "nfs", "o": "addr=$A", "device": ":/x", "size": "1"}
    assert (volume["driver"], volume["driver_opts"]) == ("local", told)
    assert volume["labels"]["persys.workload_id"] == "w"


@pytest.mark.parametrize(("allow", "told"), [(True, "cannot be followed"), (False, "not allowed")])
def test_a_path_that_cannot_be_followed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, allow: bool, told: str
) -> None:
    """As ``/proc/1/root`` is for an agent without rights: nobody can tell where it leads."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    known = os.readlink

    def read_link(path: str) -> str:
        if path != str(link):
            return known(path)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "readlink", read_link)
    with pytest.raises(RuntimeFailedError, match=told) as raised:
        read(f"services: {{a: {{volumes: ['{link}:/x']}}}}", allow=allow)
    assert raised.value.code is FailureCode.INVALID_SPEC
    assert str(link) in str(raised.value)
