"""A Compose application of a request: YAML that names services, or a git repository."""

from __future__ import annotations

import base64
import binascii
import re

import yaml

from persys_core.model.spec import ComposeSpec
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import environment
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import MAX_COMPOSE_BYTES

__all__ = ["compose_spec"]

_SOURCES = {"inline": "inline", "git": "git"}
_REPOSITORY = re.compile(
    r"((https?|ssh|git)://[^\s/]+/\S+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:\S+)\Z", re.IGNORECASE
)
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/@+-]{0,254}\Z")
_TEXT_TAG, _MERGE_TAG = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compose_spec(fields: Fields, message: pb.ComposeSpec) -> ComposeSpec:
    """The application that ``message`` describes; ``source_type`` may be left out."""
    has_yaml, has_git = bool(message.inline_yaml.strip()), bool(message.git_repo.strip())
    source = fields.word("source_type", message.source_type, _SOURCES, "")
    _check_source(fields, source, has_yaml=has_yaml, has_git=has_git)
    if has_yaml:
        _check_yaml(fields, message.inline_yaml)
    if has_git:
        _check_repository(fields, message)
    elif message.git_ref.strip():
        fields.add("git_ref", "belongs to git_repo, which is not set")
    return ComposeSpec(
        inline_yaml=message.inline_yaml if has_yaml else "",
        git_repo=message.git_repo.strip(),
        git_ref=message.git_ref.strip(),
        env=environment(fields, "env", message.env),
    )


def _check_source(fields: Fields, source: str, *, has_yaml: bool, has_git: bool) -> None:
    if has_yaml and has_git:
        fields.add("git_repo", "set together with inline_yaml; accepted is one of them")
    elif source == "git" and not has_git:
        fields.add("git_repo", "git_repo is required with source_type git")
    elif source == "inline" and not has_yaml:
        fields.add("inline_yaml", "inline_yaml is required with source_type inline")
    elif not (has_yaml or has_git):
        fields.add("inline_yaml", "inline_yaml or git_repo is required")


def _check_repository(fields: Fields, message: pb.ComposeSpec) -> None:
    """The address is never quoted: it may hold a token."""
    repository, ref = message.git_repo.strip(), message.git_ref.strip()
    if len(repository) > 2048 or not _REPOSITORY.match(repository) or not repository.isprintable():
        fields.add(
            "git_repo",
            "not an address of a repository; accepted are https://, http://, ssh:// and git://"
            " addresses and user@host:path",
        )
    if ref and not _REF.match(ref):
        fields.add("git_ref", f"{quoted(ref)} is not the name of a branch, tag or commit")


def _check_yaml(fields: Fields, text: str) -> None:
    if len(text.encode()) > MAX_COMPOSE_BYTES:
        fields.add("inline_yaml", f"has more than the accepted {MAX_COMPOSE_BYTES} bytes")
        return
    try:
        # Nodes only: nothing is constructed, so that merge keys and aliases cannot multiply.
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        fields.add("inline_yaml", f"not valid YAML{_where(error)}")
    except RecursionError:
        fields.add("inline_yaml", "nested too deeply to be read")
    else:
        if problem := _key_problem(root):
            fields.add("inline_yaml", problem)
            return
        _check_services(fields, root, text)


def _key_problem(root: yaml.Node | None) -> str:
    """Keys that are no texts, and keys that are there twice: readers of YAML differ in what they
    are, so that an agent and its Compose could see different services."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            if problem := _problem_of_keys(node):
                return problem
            waiting.extend(value for _, value in node.value)
    return ""


def _problem_of_keys(node: yaml.MappingNode) -> str:
    found: set[str] = set()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            return f"a key in line {line} is no text; accepted are texts"
        if key.tag != (_MERGE_TAG if key.value == "<<" else _TEXT_TAG):
            return f"the key in line {line} is no text; accepted is {quoted(key.value)}, in quotes"
        if key.value in found:
            return f"the key {quoted(key.value)} in line {line} was there before; accepted is one"
        found.add(key.value)
    return ""


def _check_services(fields: Fields, root: yaml.Node | None, text: str) -> None:
    if not isinstance(root, yaml.MappingNode):
        fields.add("inline_yaml", _not_a_mapping(text))
        return
    services = next((value for key, value in root.value if key.value == "services"), None)
    if not isinstance(services, yaml.MappingNode) or not services.value:
        fields.add("inline_yaml", "names no services; accepted is a Compose file with services:")
        return
    for name, body in services.value:
        if not isinstance(body, yaml.MappingNode):
            fields.add(
                "inline_yaml",
                f"the service in line {name.start_mark.line + 1} is not a mapping",
            )


def _not_a_mapping(text: str) -> str:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return "not a Compose file; accepted is a mapping with services:"
    return "looks like base64; accepted is the plain YAML text"


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", "") or "it cannot be read"
    return f": line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else ""
