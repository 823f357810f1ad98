"""Differences between two wishes: every field is seen, no secret is shown."""

import pytest
from attrs import evolve
from hypothesis import given

from persys_core.model.resources import Resources
from persys_core.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    PortMapping,
    VmSpec,
    WorkloadSpec,
    secret_values,
    spec_revision,
)
from persys_core.model.spec_changes import SpecChange, spec_changes
from persys_core.model.states import WorkloadType
from persys_core.model.workload import Workload
from persys_core.testing.strategies import workloads
from tests.builders import container

SECRET = "s3cr3t-XYZ"


def texts(changes: tuple[SpecChange, ...]) -> list[tuple[str, str, str]]:
    """The changes as plain tuples."""
    return [(change.field, change.old, change.new) for change in changes]


@pytest.mark.slow
@given(workloads(), workloads())
def test_a_difference_is_listed_exactly_where_the_revision_differs(
    one: Workload, two: Workload
) -> None:
    """A02: specs of one revision have no difference, specs of two have at least one."""
    differ = spec_revision(one.spec) != spec_revision(two.spec)
    assert bool(spec_changes(one.spec, two.spec)) is differ
    assert spec_changes(one.spec, one.spec) == ()


@pytest.mark.slow
@given(workloads(), workloads())
def test_no_difference_shows_a_secret(one: Workload, two: Workload) -> None:
    """A04: whatever ``secret_values`` names stands on neither side."""
    first, both = secret_values(one.spec), secret_values(one.spec) | secret_values(two.spec)
    for changes, secrets in (
        (spec_changes(one.spec, two.spec), both),
        (spec_changes(None, one.spec), first),
    ):
        for shown in (text for change in changes for text in (change.old, change.new)):
            assert not [secret for secret in secrets if secret in shown.replace("***", "")]


def test_fields_are_named_as_the_contract_names_them() -> None:
    """Paths of the request, with the unit in the name; lists by index, maps by key."""
    old = container(cpu=500, env={"A": "1"}, metadata={"app": "shop"})
    assert isinstance(old.body, ContainerSpec)
    body = evolve(old.body, command=("run", "it"), env={}, ports=(PortMapping(0, 80),))
    new = WorkloadSpec(
        old.type, Resources.of(cpu_millicores=700, memory_mb=128, disk_gb=2), body, {"app": "x"}
    )
    assert texts(spec_changes(old, new)) == [
        ("spec.resources.cpu_millicores", "500", "700"),
        ("spec.resources.disk_gb", "", "2"),
        ("spec.metadata[app]", "shop", "x"),
        ("spec.container.command", "", '["run", "it"]'),
        ("spec.container.ports[0].host_port", "", "0"),
        ("spec.container.ports[0].container_port", "", "80"),
        ("spec.container.ports[0].protocol", "", "tcp"),
        ("spec.container.env[A]", "1", ""),
    ]


def test_a_new_wish_is_what_it_sets() -> None:
    """Without an old one, defaults are no news."""
    assert texts(spec_changes(None, container("nginx", cpu=100, memory=64))) == [
        ("spec.type", "", "container"),
        ("spec.resources.cpu_millicores", "", "100"),
        ("spec.resources.memory_mb", "", "64"),
        ("spec.container.image", "", "nginx"),
    ]


def test_another_kind_is_another_wish() -> None:
    """The old kind's fields end, the new one's begin."""
    compose = WorkloadSpec(WorkloadType.COMPOSE, Resources(), ComposeSpec("services: {}"))
    fields = [change.field for change in spec_changes(container(), compose)]
    assert fields[0] == "spec.type"
    assert {"spec.compose.inline_yaml", "spec.container.image"} <= set(fields)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (ComposeSpec(f"a: {SECRET}"), ComposeSpec(f"b: {SECRET}"), "inline_yaml"),
        (ComposeSpec("", f"https://{SECRET}@g/a"), ComposeSpec("", f"https://{SECRET}@g/b"),
         "git_repo"),
        (VmSpec(1, 2, cloud_init=CloudInit(SECRET)), VmSpec(1, 2, cloud_init=CloudInit("x")),
         "cloud_init.user_data"),
        (VmSpec(1, 2), VmSpec(1, 2, cloud_init=CloudInit(password=SECRET)),
         "cloud_init.password"),
        (VmSpec(1, 2), VmSpec(1, 2, cloud_init_text=SECRET), "cloud_init_text"),
        (VmSpec(1, 2), VmSpec(1, 2, metadata={"api_key": SECRET}), "metadata[api_key]"),
    ],
)  # fmt: skip
def test_what_may_hold_secrets_differs_without_being_shown(
    old: ComposeSpec | VmSpec, new: ComposeSpec | VmSpec, field: str
) -> None:
    """A04: texts that may hold secrets anywhere are masked whole; that they differ is told."""
    kind = WorkloadType.COMPOSE if isinstance(old, ComposeSpec) else WorkloadType.VM
    one, two = (WorkloadSpec(kind, Resources(), body) for body in (old, new))
    [change] = spec_changes(one, two)
    assert change.field.endswith(field)
    assert SECRET not in repr(change)
    assert {change.old, change.new} <= {"***", ""}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("app", "--token", SECRET, "-v"), '["app", "--token", "***", "-v"]'),
        (("app", "--db-password", "x1", "--pass=ab12cd34"), '["app", "--db-password", "***", '
         '"--pass=***"]'),
        (("app", "-secret", SECRET, SECRET), '["app", "-secret", "***", "***"]'),
        (("sh", "-c", f"a --token {SECRET} && b --api-key 'p q' -x 1"),
         '["sh", "-c", "a --token *** && b --api-key \'***\' -x 1"]'),
        (("app", "--use-token", "--verbose", "now"), '["app", "--use-token", "--verbose", "now"]'),
        (("app", "--name", "web", "--keyboard", "us"), '["app", "--name", "web", "--keyboard", '
         '"us"]'),
    ],
)  # fmt: skip
def test_what_follows_a_secret_flag_is_masked(command: tuple[str, ...], shown: str) -> None:
    """A04: as an argument of its own or inside a script; a flag that follows is no value."""
    old, new = ContainerSpec("i"), ContainerSpec("i", command)
    one, two = (WorkloadSpec(WorkloadType.CONTAINER, Resources(), body) for body in (old, new))
    [change] = spec_changes(one, two)
    assert (change.field, change.new) == ("spec.container.command", shown)
    assert SECRET not in repr(two)
    assert (SECRET in secret_values(two)) is (SECRET in repr(command))


def test_a_changed_secret_argument_differs_without_being_shown() -> None:
    """Both sides read alike, so that the client says that they differ."""
    bodies = (ContainerSpec("i", ("app", "--token", each)) for each in ("one-secret", "two-secret"))
    one, two = (WorkloadSpec(WorkloadType.CONTAINER, Resources(), body) for body in bodies)
    [change] = spec_changes(one, two)
    assert change.old == change.new == '["app", "--token", "***"]'
