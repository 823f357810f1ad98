"""A Compose file as the runtime needs to know it, and what is laid over it.

Decided here: which files are refused before Compose sees them, what a project is called, and which
labels say whose everything is. Services carry the revision, so a changed one is made anew; volumes
carry only what never changes, since their data has to stay.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import yaml
from attrs import frozen

from persys_agent.runtimes.compose.caps import capped, copies
from persys_agent.runtimes.compose.command_line import bare_environment
from persys_agent.runtimes.compose.escapes import check_file, sockets
from persys_agent.runtimes.compose.folder import OWN_FILES
from persys_agent.runtimes.compose.inheritance import with_inherited
from persys_agent.runtimes.compose.paths import check_paths, check_readable
from persys_agent.runtimes.compose.reading import (
    key_problem,
    replaced,
    word,
)
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.compose.sums import Hold
from persys_agent.runtimes.docker.configuration import LEAST_MEMORY_MB
from persys_agent.runtimes.docker.documents import Document, document, text
from persys_agent.runtimes.docker.labels import owner_labels, work_labels
from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.resources import MEMORY
from persys_core.model.spec import ComposeSpec

__all__ = [
    "EXEC_LABEL",
    "EXEC_SERVICE",
    "KIND",
    "Application",
    "application",
    "check_resolved",
    "overlay",
    "project",
]

KIND = "compose"
EXEC_SERVICE = "persys.agent.exec_service"
EXEC_LABEL = "persys.exec"
_MOST_CHARACTERS = 1024 * 1024
_BYTES_PER_MB = 1024 * 1024
_Loader: TypeAlias = Callable[[str], yaml.SafeLoader]
_FAST_LOADER: _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_RESOLVED = 2 * _MOST_CHARACTERS
_SLUG_CHARACTERS = 40
_DIGEST_CHARACTERS = 12
_NOT_IN_A_PROJECT = re.compile(r"[^a-z0-9_-]+")


@frozen
class Application:
    """What stands in a Compose file: ``services`` in its order, with their variables replaced and
    what they inherit; ``exec_service`` the one that commands go to; ``expected`` those that run
    without being asked for; and the ``volumes`` that Compose makes for it, as they are written:
    Compose v1 knows of a volume only what the last file says."""

    text: str
    services: Mapping[str, Document]
    exec_service: str
    expected: frozenset[str]
    volumes: Mapping[str, Document]
    version: str = ""

    @property
    def images(self) -> tuple[str, ...]:
        """The images of the expected services, each once."""
        named = (text(self.services[name], "image") for name in sorted(self.expected))
        return tuple(dict.fromkeys(filter(None, named)))


def project(owner: Owner, workload_id: WorkloadId) -> str:
    """The name of the project: readable, in Compose's alphabet, and different for any two
    workloads, nodes or clusters, whatever their letters become."""
    identity = "\0".join((owner.cluster_id, owner.node_id, workload_id))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    slug = _NOT_IN_A_PROJECT.sub("-", workload_id.lower())[:_SLUG_CHARACTERS].strip("-_")
    return f"{slug or 'w'}-{digest}"


def application(
    order: Order, folder: Path, settings: ComposeSettings, endpoint: str = ""
) -> Application:
    """The ordered application, for a project in ``folder`` on the daemon of ``endpoint``. Raises
    ``RuntimeFailedError`` where it cannot be one, or not here. Looks links of the host up."""
    body = order.spec.body
    if not isinstance(body, ComposeSpec):
        raise _invalid(f"a {order.spec.type} is nothing that Compose runs")
    written = _written(body)
    check_readable(_objects(written, "services"), body.env)
    content = _content(written, {**body.env, **bare_environment()})
    found = _objects(content, "services")
    if not found:
        raise _invalid("the Compose file has no services")
    _check_is_whole(content, found)
    services = with_inherited(found)
    _check(services, content, folder, settings, endpoint)
    return Application(
        text=body.inline_yaml,
        services=services,
        exec_service=_exec_service(order, services),
        expected=frozenset(name for name, each in services.items() if _is_expected(name, each)),
        volumes={
            name: _definition(each)
            for name, each in _objects(written, "volumes").items()
            if not document(content, "volumes", name).get("external")
        },
        version=word(content.get("version") or ""),
    )


def check_resolved(
    resolved: str, folder: Path, hold: Hold, settings: ComposeSettings, endpoint: str
) -> None:
    """The same for what Compose tells that it understands, with all that is laid over the file.
    Raises ``RuntimeFailedError``. Looks links of the host up."""
    if len(resolved) > _MOST_RESOLVED:
        raise _invalid(f"the Compose file stands for more than {_MOST_RESOLVED} characters")
    content = _content(_parsed(resolved, _FAST_LOADER), {})  # dollars are written twice there too
    services = {
        name: {key: each[key] for key in each if (key, each[key]) != ("cgroup_parent", hold.parent)}
        for name, each in _objects(content, "services").items()
    }
    _check(services, content, folder, settings, endpoint)


def _check(
    services: Mapping[str, Document],
    content: Document,
    folder: Path,
    settings: ComposeSettings,
    endpoint: str,
) -> None:
    """What may be on this node, and where it may lead."""
    if not settings.allow_privileged:
        check_file(services, content, sockets(endpoint))
    private = () if settings.allow_privileged else (folder.parent, *settings.private)
    try:
        check_paths(services, content, folder, OWN_FILES, private)
    except OSError as error:
        raise _invalid(
            f'the path "{error.filename}" cannot be followed by the agent'
            f" ({error.strerror}); name another"
        ) from error


def overlay(app: Application, owner: Owner, order: Order, hold: Hold) -> str:
    """A second file for Compose, with our labels and limits; in JSON, which is YAML too."""
    labels = {**work_labels(owner, order, KIND), **hold.labels}
    parent = {"cgroup_parent": hold.parent} if hold.parent else {}
    services = {
        name: {
            "labels": _escaped(
                labels | {EXEC_LABEL: "true" if name == app.exec_service else "false"}
            ),
            **_capped(name, each, hold),
            **parent,
        }
        for name, each in app.services.items()
    }
    lasting = _escaped(owner_labels(owner, order.workload_id, KIND))
    content: dict[str, object] = {"services": services}
    if app.volumes:
        content["volumes"] = {
            name: {**each, "labels": lasting} for name, each in app.volumes.items()
        }
    if app.version:
        content["version"] = app.version
    return json.dumps(content, indent=2)


def _capped(name: str, service: Document, hold: Hold) -> Mapping[str, object]:
    """Containers of one service share the whole where nothing else holds them together."""
    sharing = 1 if hold.parent else max(1, _copies(name, service)[1])
    laid = capped(service, hold.asked, sharing)
    memory = int(text(laid, "mem_limit") or 0)
    if not 0 < memory < LEAST_MEMORY_MB * _BYTES_PER_MB:
        return laid
    shared = f", of {hold.asked.get(MEMORY)} MB for {sharing} of them" if sharing > 1 else ""
    raise _invalid(
        f"services.{name}: a memory limit of {memory} bytes{shared} is less than a container can"
        f" have: {LEAST_MEMORY_MB} MB; ask for more, or have fewer of them"
    )


def _copies(name: str, service: Document) -> tuple[int, int]:
    try:
        return copies(service)
    except ValueError as error:
        raise _invalid(f"services.{name}.{error}") from None


def _definition(volume: Document) -> Document:
    """What makes a volume the one that it is."""
    kept = {key: word(volume[key]) for key in ("driver", "name") if volume.get(key) is not None}
    options = {key: word(each) for key, each in document(volume, "driver_opts").items()}
    return {**kept, "driver_opts": options} if options else kept


def _exec_service(order: Order, services: Mapping[str, Document]) -> str:
    chosen = order.spec.metadata.get(EXEC_SERVICE, "") or next(iter(services))
    if chosen not in services:
        raise _invalid(f'{EXEC_SERVICE} "{chosen}" is not one of {", ".join(services)}')
    return chosen


def _escaped(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Compose replaces variables in labels as well."""
    return {label: value.replace("$", "$$") for label, value in labels.items()}


def _written(body: ComposeSpec) -> Mapping[str, object]:
    """The file as it is written."""
    if not body.inline_yaml.strip():
        raise _invalid("there is no Compose file; a repository is nothing that the agent fetches")
    if len(body.inline_yaml) > _MOST_CHARACTERS:
        raise _invalid(f"the Compose file has more than {_MOST_CHARACTERS} characters")
    return _parsed(body.inline_yaml)


def _content(written: Mapping[str, object], variables: Mapping[str, str]) -> Document:
    """The file with its variables replaced."""
    try:
        content = replaced(written, variables)
    except RecursionError:
        raise _invalid("the Compose file is nested too deeply to be read") from None
    assert isinstance(content, Mapping)
    return content


def _check_is_whole(content: Document, services: Mapping[str, Document]) -> None:
    """Services of other files would be nobody's: no label of ours is laid over them."""
    found = ["include"] if content.get("include") not in (None, []) else []
    for name, each in services.items():
        extends = each.get("extends")
        if isinstance(extends, Mapping) and extends.get("file") is not None:
            found.append(f"services.{name}.extends.file")
    if found:
        raise _invalid(
            f"the Compose file names other files ({', '.join(found)}), which are not sent along;"
            " write their services into it"
        )


def _parsed(source: str, loader: _Loader = yaml.SafeLoader) -> Mapping[str, object]:
    try:
        content = _constructed(loader(source))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _invalid(f"the Compose file is no YAML{where}: {error.problem or ''}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _invalid(f"the Compose file is no YAML: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise _invalid("the Compose file is no mapping")
    return content


def _constructed(loader: yaml.SafeLoader) -> object:
    try:
        root = loader.get_single_node()
        if problem := key_problem(root):
            raise _invalid(f"the Compose file is not clear: {problem}")
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _objects(content: Mapping[str, object], key: str) -> dict[str, Mapping[str, object]]:
    found = content.get(key) or {}
    if not isinstance(found, dict):
        raise _invalid(f'"{key}" of the Compose file is no mapping')
    for name, each in found.items():
        if each is not None and not isinstance(each, dict):
            raise _invalid(f'"{key}.{name}" of the Compose file is no mapping')
    return {name: each or {} for name, each in found.items()}


def _is_expected(name: str, service: Document) -> bool:
    return _copies(name, service)[0] > 0 and not service.get("profiles")


def _invalid(message: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.INVALID_SPEC, message)
