"""Sizes and conventions, as functions from source text to findings.

Decided here: how large a function, a class, a port and a file may be, what every test needs, and
where two tools of convenience may not appear. The numbers are those of docs/architecture.md.
"""

import ast
from collections.abc import Iterator
from functools import cache

__all__ = [
    "find_injection",
    "find_patching",
    "find_undocumented_tests",
    "find_wide_protocols",
    "oversized",
]

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400
MAX_PROTOCOL_METHODS = 8
MAX_PUBLIC_METHODS = 12

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _tree(source: str) -> ast.Module:
    """Every file is asked about several rules, and parsed once."""
    return ast.parse(source)


def oversized(source: str) -> Iterator[str]:
    """Yield what is too large in a module: the file, its functions and its classes.

    A file or a class may be larger when its docstring has a line `Size: <reason>`.
    """
    tree = _tree(source)
    lines = source.count("\n")
    if lines > MAX_FILE_LINES and not _gives_reason(tree):
        yield f"1: {lines} lines (at most {MAX_FILE_LINES}, or a Size: line in the docstring)"
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and _length(node) > MAX_FUNCTION_LINES:
            yield (
                f"{node.lineno}: {node.name} has {_length(node)} lines"
                f" (at most {MAX_FUNCTION_LINES})"
            )
        if isinstance(node, ast.ClassDef) and not _gives_reason(node):
            count = len(_public_methods(node))
            if count > MAX_PUBLIC_METHODS:
                yield (
                    f"{node.lineno}: {node.name} has {count} public methods (at most"
                    f" {MAX_PUBLIC_METHODS}, or a Size: line in the docstring)"
                )


def find_wide_protocols(source: str) -> Iterator[str]:
    """Yield the protocols that ask too much of whoever implements them."""
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.ClassDef) and any(map(_is_protocol, node.bases)):
            count = len(_methods(node))
            if count > MAX_PROTOCOL_METHODS:
                yield (
                    f"{node.lineno}: {node.name} has {count} methods"
                    f" (at most {MAX_PROTOCOL_METHODS})"
                )


def find_undocumented_tests(source: str) -> Iterator[str]:
    """Yield the test functions that do not say which rule they hold."""
    for node in ast.walk(_tree(source)):
        if not isinstance(node, FUNCTIONS) or ast.get_docstring(node):
            continue
        if node.name.startswith("test_"):
            yield f"{node.lineno}: {node.name} has no docstring"


def find_patching(source: str) -> Iterator[str]:
    """Yield each use of unittest.mock.patch."""
    for node in ast.walk(_tree(source)):
        match node:
            case ast.ImportFrom(module="unittest.mock", names=names):
                if any(alias.name in {"patch", "*"} for alias in names):
                    yield f"{node.lineno}: import of unittest.mock.patch"
            case ast.Attribute(value=ast.Name(id="mock"), attr="patch"):
                yield f"{node.lineno}: use of mock.patch"
            case ast.Attribute(value=ast.Attribute(attr="mock"), attr="patch"):
                yield f"{node.lineno}: use of unittest.mock.patch"
            case _:
                pass


def find_injection(source: str) -> Iterator[str]:
    """Yield each import of dependency-injector's wiring, where @inject and Provide come from."""
    for node in ast.walk(_tree(source)):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("dependency_injector"):
                names = {alias.name for alias in node.names}
                if module.endswith(".wiring") or names & {"wiring", "*"}:
                    yield f"{node.lineno}: import of {module}"
            case ast.Import(names=names) if any(
                alias.name == "dependency_injector.wiring" for alias in names
            ):
                yield f"{node.lineno}: import of dependency_injector.wiring"
            case _:
                pass


def _gives_reason(node: ast.Module | ast.ClassDef) -> bool:
    lines = (ast.get_docstring(node) or "").splitlines()
    return any(line.startswith("Size:") and line != "Size:" for line in map(str.strip, lines))


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines from `def` to the end, the docstring left out: saying more costs nothing."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def _methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, FUNCTIONS)}


def _public_methods(node: ast.ClassDef) -> set[str]:
    """Name the public methods; the rules of a contract suite do not count as such."""
    return {name for name in _methods(node) if not name.startswith(("_", "test_"))}


def _is_protocol(base: ast.expr) -> bool:
    if isinstance(base, ast.Subscript):
        return _is_protocol(base.value)
    if isinstance(base, ast.Attribute):
        return base.attr == "Protocol"
    return isinstance(base, ast.Name) and base.id == "Protocol"
