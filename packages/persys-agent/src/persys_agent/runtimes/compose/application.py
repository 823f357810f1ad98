"""A Compose file as the runtime needs to know it, and what is laid over it.

Decided here: which files are refused before Compose sees them, what a project is called, and which
labels say whose everything is. Services carry the revision, so a changed one is made anew; volumes
carry only what never changes, since their data has to stay.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

import yaml
from attrs import frozen

from persys_agent.runtimes.docker.labels import owner_labels, work_labels
from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import ComposeSpec

__all__ = ["EXEC_LABEL", "EXEC_SERVICE", "KIND", "Application", "application", "overlay", "project"]

KIND = "compose"
EXEC_SERVICE = "persys.agent.exec_service"
EXEC_LABEL = "persys.exec"
_MOST_CHARACTERS = 1024 * 1024
_SLUG_CHARACTERS = 40
_DIGEST_CHARACTERS = 12
_NOT_IN_A_PROJECT = re.compile(r"[^a-z0-9_-]+")


@frozen
class Application:
    """What stands in a Compose file: ``services`` in its order, ``expected`` those that run without
    being asked for, and the ``volumes`` that Compose makes for it."""

    text: str
    services: tuple[str, ...]
    expected: frozenset[str]
    volumes: tuple[str, ...]
    version: str = ""


def project(owner: Owner, workload_id: WorkloadId) -> str:
    """The name of the project: readable, in Compose's alphabet, and different for any two
    workloads, nodes or clusters, whatever their letters become."""
    identity = "\0".join((owner.cluster_id, owner.node_id, workload_id))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    slug = _NOT_IN_A_PROJECT.sub("-", workload_id.lower())[:_SLUG_CHARACTERS].strip("-_")
    return f"{slug or 'w'}-{digest}"


def application(order: Order, *, allow_privileged: bool) -> Application:
    """The ordered application. Raises ``RuntimeFailedError`` where it cannot be one."""
    body = order.spec.body
    if not isinstance(body, ComposeSpec):
        raise _invalid(f"a {order.spec.type} is nothing that Compose runs")
    if not body.inline_yaml.strip():
        raise _invalid("there is no Compose file; a repository is nothing that the agent fetches")
    if len(body.inline_yaml) > _MOST_CHARACTERS:
        raise _invalid(f"the Compose file has more than {_MOST_CHARACTERS} characters")
    content = _parsed(body.inline_yaml)
    services = _objects(content, "services")
    if not services:
        raise _invalid("the Compose file has no services")
    if not allow_privileged and (risky := _privileged(services)):
        raise _invalid(f"privileged containers are not allowed on this node: {', '.join(risky)}")
    return Application(
        text=body.inline_yaml,
        services=tuple(services),
        expected=frozenset(name for name, each in services.items() if _is_expected(each)),
        volumes=tuple(
            name for name, each in _objects(content, "volumes").items() if not each.get("external")
        ),
        version=str(content.get("version") or ""),
    )


def overlay(app: Application, owner: Owner, order: Order) -> str:
    """A second file for Compose, with our labels; in JSON, which is YAML too. Raises
    ``RuntimeFailedError``."""
    chosen = order.spec.metadata.get(EXEC_SERVICE, "") or app.services[0]
    if chosen not in app.services:
        raise _invalid(f'{EXEC_SERVICE} "{chosen}" is not one of {", ".join(app.services)}')
    labels = work_labels(owner, order, KIND)
    services = {
        name: {"labels": labels | {EXEC_LABEL: "true" if name == chosen else "false"}}
        for name in app.services
    }
    lasting = owner_labels(owner, order.workload_id, KIND)
    content: dict[str, object] = {"services": _escaped(services)}
    if app.volumes:
        content["volumes"] = _escaped({name: {"labels": lasting} for name in app.volumes})
    if app.version:
        content["version"] = app.version
    return json.dumps(content, indent=2)


def _escaped(
    labelled: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Compose replaces variables in labels as well."""
    return {
        name: {
            key: {label: value.replace("$", "$$") for label, value in labels.items()}
            for key, labels in each.items()
        }
        for name, each in labelled.items()
    }


def _parsed(source: str) -> Mapping[str, object]:
    try:
        content = yaml.safe_load(source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _invalid(f"the Compose file is no YAML{where}: {error.problem or ''}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(f"the Compose file is no YAML: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise _invalid("the Compose file is no mapping")
    return content


def _objects(content: Mapping[str, object], key: str) -> dict[str, Mapping[str, object]]:
    found = content.get(key) or {}
    if not isinstance(found, dict):
        raise _invalid(f'"{key}" of the Compose file is no mapping')
    for name, each in found.items():
        if each is not None and not isinstance(each, dict):
            raise _invalid(f'"{key}.{name}" of the Compose file is no mapping')
    return {str(name): each or {} for name, each in found.items()}


def _privileged(services: Mapping[str, Mapping[str, object]]) -> Sequence[str]:
    """A text may become true once its variables are replaced: only a plain *no* counts as one."""
    return [
        name
        for name, each in services.items()
        if each.get("privileged") not in (None, False, "false", "no")
    ]


def _is_expected(service: Mapping[str, object]) -> bool:
    deploy = service.get("deploy")
    replicas = deploy.get("replicas") if isinstance(deploy, dict) else None
    return not service.get("profiles") and 0 not in (service.get("scale", 1), replicas)


def _invalid(message: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.INVALID_SPEC, message)
