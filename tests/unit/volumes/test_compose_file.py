"""Which Compose files keep data on the node that they run on."""

from __future__ import annotations

import textwrap
import time

import pytest
import yaml

from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.compose_file import has_local_volumes

SERVICE = "services:\n  db:\n    image: db\n    volumes:\n      - data:/data\n"

LOCAL = [
    "volumes:\n  data:\n",
    "volumes:\n  data: {}\n",
    "volumes:  # kept\n  # one\n\n  data:   # here\nnetworks:\n  x:\n",
    '"volumes":\n    "data":\n        driver: local\n',
    "volumes:\n  data:\n    driver: 'local'\n    driver_opts:\n      type: none\n      o: bind\n",
    "volumes:\n  shared:\n    external: true\n  data:\n    labels:\n      external: true\n",
    "volumes:\n  shared: {external: true}\n  data: {driver: local, labels: [driver]}\n",
    "volumes: {data: }\n",
    "volumes: {shared: {external: true}, data: {name: 'it''s'}}\n",
    "volumes: {\n  data: {driver: local}\n  }\n",
    "volumes:\n  data:\n    external: false\n",
    "volumes:\n  data: &default\n    name: x\n",
    "volumes:\n  data:\n    driver: ${DRIVER}\n",
    "volumes:\r\n  data:\r\n",
    "volumes:\n  {data: {}}\n",
    "volumes: {data: {external: false,\n  name: x}}\n",
    "volumes:\n  data:\n    driver: !!str local\n",
    "volumes:\n  data:\n    external: !!bool false\n",
    "volumes: !!map\n  data:\n",
    "volumes: &v\n  data:\n",
    "volumes: {data: {driver: !!str local}}\n",
    "volumes: {data: &d {driver: local}}\n",
    "volumes:\n  ? data\n  : driver: local\n",
    "? volumes\n: data:\n",
    "!!str volumes:\n  data:\n",
    '"vol\\x75mes":\n  data:\n',
    "volumes:\n  data:\n    driver_opts: {type: none, o: nfs}\n",
    "volumes:\n  data:\n    name: 'x\n      external: true'\n",
    "volumes:\n  shared:\n    external: true\nx-more: {}\n'volumes':\n  data:\n",
]
ALIASED = [
    "volumes: *v\n",
    "<<: {volumes: *v}\n",
    "volumes: {<<: *v}\n",
    "volumes:\n  <<: *v\n",
    "volumes:\n  data: *d\n",
    "volumes:\n  data:\n    driver: *w\n",
    "volumes: {data: {driver: *w}}\n",
    "volumes:\n  data:\n    external: *no\n",
    "volumes:\n  data:\n    driver_opts: *d\n",
]
"""Behind what they are aliases of."""
ELSEWHERE = [
    "",
    "volumes:\n",
    "volumes: {}\n",
    "volumes:\nnetworks:\n  data:\n",
    "volumes:\n  data:\n    external: true\n",
    "volumes:\n  data: {external: yes}\n",
    "volumes:\n  data:\n    external:\n      name: x\n",
    "volumes: {data: {external: {name: x}}}\n",
    "volumes:\n  data:\n    driver: rexray/ebs\n  more: {driver: nfs}\n",
    "volumes:\n  data:\n    driver: local\n    driver_opts:\n      type: nfs4\n      o: addr=h\n",
    'volumes:\n  data:\n    driver_opts: {type: "nfs", device: ":/x"}\n',
    "x-volumes:\n  data:\n",
    "# volumes:\n#   data:\n",
    "configs:\n  c:\n    content: |\n      volumes:\n        data:\n",
]


@pytest.mark.parametrize("part", LOCAL)
def test_named_volumes_are_on_the_node(part: str) -> None:
    """Unless they are external or another driver's; before and behind the services."""
    for text in (SERVICE + part, part + SERVICE):
        assert yaml.safe_load(text)["services"]
        assert has_local_volumes(text)


@pytest.mark.parametrize("part", ELSEWHERE)
def test_what_is_not_named_or_elsewhere_is_not(part: str) -> None:
    """What a service mounts, and what others have a key of that name for, says nothing."""
    for text in (SERVICE + part, part + SERVICE):
        assert yaml.safe_load(text)["services"]
        assert not has_local_volumes(text)


@pytest.mark.parametrize("part", ALIASED)
def test_what_stands_elsewhere_in_the_file_may_be_local(part: str) -> None:
    """Aliases are not followed, so they are doubts."""
    anchors = "x-v: &v\n  data: &d\n    driver: &w local\nx-no: &no false\n"
    text = anchors + SERVICE + part
    assert yaml.safe_load(text)["services"]
    assert has_local_volumes(text)


def test_a_file_that_is_indented_as_a_whole() -> None:
    """It is read as any other; with a line that stands out it is a doubt."""
    for part, is_local in ((LOCAL[0], True), (ELSEWHERE[4], False)):
        text = textwrap.indent(SERVICE + part, "    ")
        assert yaml.safe_load(text)["services"]
        assert has_local_volumes(text) is is_local
        assert has_local_volumes("# outside\n" + text)


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ('{"services": {"db": {"volumes": ["data:/d"]}}, "volumes": {"data": null}}', True),
        ('{"services":{"db":{}},"volumes":{"data":{"driver":"local"}}}', True),
        ('---\n{services: {db: {volumes: ["data:/d"]}}, volumes: {data: {}}}', True),
        ('# first\n--- # second\n\n  {"services": {}, "volumes": {"data": {}}}', True),
        ('{"services": {}, "vol\\u0075mes": {"data": {}}}', True),
        ('{x: &v {data: {}}, "services": {}, "volumes": *v}', True),
        ("{services: {}, <<: {volumes: {data: {}}}}", True),
        ("!!map {services: {}, volumes: {data: {}}}", True),
        ('# first\n{"services": {"db": {"volumes": ["data:/d"]}}, "volumes": {}} # last', False),
        ('{"services": {"db": {"command": "a\\tb", "volumes": ["data:/d"]}}}', False),
        ('{"volumes":{"data":{"external":true}},"services":{}}', False),
    ],
)
def test_files_in_braces(text: str, is_local: bool) -> None:
    """JSON, which is YAML too."""
    assert "services" in yaml.safe_load(text)
    assert has_local_volumes(text) is is_local


@pytest.mark.parametrize(
    "text",
    [
        '{"volumes": {"data"',
        "{volumes: " + "{" * 2000,
        "volumes: {{",
        "volumes: {}\n  data:\n",
        "volumes:\n\tdata:\n",
        "%YAML 1.1\n---\nvolumes:\n",
        "services: {}\rvolumes:\r  data:\r",
        "services: {}\u2028volumes:\u2028  data:",
        "include: [https://h/c.yaml]\nservices: {}\n",
    ],
)
def test_what_cannot_be_read_is_a_doubt(text: str) -> None:
    """Data that was left behind is worse than work that stays."""
    assert has_local_volumes(text)


def test_a_large_file_is_read_once() -> None:
    """However often it is asked about, since it is asked on the event loop."""
    text = SERVICE + "#" + " " * 1_000_000 + "\n" + ELSEWHERE[4]
    assert not has_local_volumes(text)
    began = time.process_time()
    for _ in range(1000):
        assert not has_local_volumes(text)
    assert time.process_time() - began < 0.5


def test_a_large_file_is_read_in_no_time() -> None:
    """Whatever somebody sends, as long as a Compose file may be."""
    most = 256 * 1024
    for line in (" " * most, "a" * most, "a: " * (most // 3), "'" * most, "{" * most, "#" * most):
        began = time.monotonic()
        has_local_volumes(f"volumes:\n  {line}\n  {line}x\n")
        has_local_volumes(f"{{volumes: {line}")
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("metadata", "is_local"),
    [
        ({}, True),
        ({"persys.scheduling.persistence_class": "shared-storage"}, False),
        ({"persys.scheduling.allow_move": "true"}, False),
    ],
)
def test_an_application_stays_with_its_data(metadata: dict[str, str], is_local: bool) -> None:
    """Unless the user says that it may move; one from a repository says nothing of itself."""
    body = ComposeSpec(SERVICE + LOCAL[0])
    assert has_local_data(_spec(body, metadata)) is is_local
    assert not has_local_data(_spec(ComposeSpec(git_repo="https://h/r"), metadata))


def _spec(body: ComposeSpec, metadata: dict[str, str]) -> WorkloadSpec:
    return WorkloadSpec(WorkloadType.COMPOSE, Resources(), body, metadata)
