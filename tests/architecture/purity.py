"""The purity of the core, as a function from source text to findings.

Decided here: what a module of `persys_core` may not touch. The clock, chance and the outside world
come in as parameters, so their global forms are forbidden; see docs/architecture.md. Nothing is
imported or executed: the text is parsed and the names in it are followed to where they come from.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Finding", "check_purity"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One forbidden thing: the line it stands on and what it is."""

    line: int
    what: str


class Rule(Enum):
    """Permissions that some folders of the core have."""

    ASYNCIO = auto()
    SEEDING = auto()
    PYTEST = auto()
    TERMINAL = auto()


# What each folder directly under persys_core may do beyond the pure ones.
FOLDER_RULES: dict[str, frozenset[Rule]] = {
    "control": frozenset({Rule.ASYNCIO}),
    "memory": frozenset({Rule.ASYNCIO}),
    "sim": frozenset({Rule.ASYNCIO, Rule.SEEDING}),
    "testing": frozenset({Rule.ASYNCIO, Rule.SEEDING, Rule.PYTEST}),
}

ALLOWED_PACKAGES = frozenset({"attr", "attrs", "numpy", "persys_core"})

# Standard library modules that are input, output, the clock, the machine or other threads.
FORBIDDEN_MODULES = frozenset(
    "concurrent ctypes fcntl fileinput ftplib getpass glob http imaplib importlib mmap"
    " multiprocessing os pathlib poplib pty queue resource sched secrets select selectors shelve"
    " shutil signal smtplib socket socketserver sqlite3 ssl subprocess syslog tempfile termios"
    " threading time urllib webbrowser _thread".split()
)

# Names that are forbidden one by one, in modules that are otherwise fine.
FORBIDDEN_NAMES = frozenset(
    "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today"
    " uuid.uuid1 uuid.uuid4 uuid.getnode io.open io.FileIO io.open_code"
    " random.SystemRandom numpy.load numpy.save numpy.savez numpy.fromfile numpy.loadtxt"
    " numpy.savetxt numpy.memmap".split()
)
TERMINAL_NAMES = frozenset("sys.argv sys.exit sys.stdin sys.stdout sys.stderr".split())
FORBIDDEN_BUILTINS = frozenset("__import__ breakpoint eval exec input open".split())

# Injected sources of chance: free to name, but made from a seed at the edges only.
RANDOM_TYPES = frozenset({"random.Random", "numpy.random.Generator"})
SEEDED_MAKERS = frozenset({"random.Random", "numpy.random.default_rng"})

# What the entry point of a simulation may use: it speaks to a terminal and starts processes.
ENTRY_POINT_MODULES = frozenset({"concurrent", "multiprocessing", "time"})


def check_purity(source: str, path: str) -> list[Finding]:
    """Return what is impure in the module `source`, which stands at `path` below `persys_core`.

    The path is relative, with forward slashes, such as `sim/runner.py`. Findings are in line order.
    """
    tree = ast.parse(source, filename=path)
    checker = _Checker(_rules_for(path), _origins(tree), is_entry_point=_is_entry_point(path))
    return sorted(checker.findings(tree), key=lambda finding: (finding.line, finding.what))


def _is_entry_point(path: str) -> bool:
    return path.rpartition("/")[2] == "__main__.py"


def _rules_for(path: str) -> frozenset[Rule]:
    folder, _, rest = path.partition("/")
    rules = FOLDER_RULES.get(folder, frozenset()) if rest else frozenset()
    return rules | {Rule.TERMINAL} if rules and _is_entry_point(path) else rules


def _origins(tree: ast.AST) -> dict[str, str]:
    """Map each name that an import binds to the dotted name that it stands for."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                origins[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return origins


@dataclass(frozen=True, slots=True)
class _Checker:
    rules: frozenset[Rule]
    origins: dict[str, str]
    is_entry_point: bool

    def findings(self, tree: ast.AST) -> Iterator[Finding]:
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            match node:
                case ast.Import():
                    for alias in node.names:
                        yield from self._module(alias.name, node.lineno)
                case ast.ImportFrom():
                    yield from self._import_from(node)
                case ast.Name() | ast.Attribute() if id(node) not in inner:
                    yield from self._use(node, is_called=id(node) in called)
                case _:
                    pass

    def _import_from(self, node: ast.ImportFrom) -> Iterator[Finding]:
        if node.level or not node.module:
            return
        yield from self._module(node.module, node.lineno)
        for alias in node.names:
            if alias.name == "*":
                yield Finding(node.lineno, f"import of everything from {node.module}")
            elif reason := self._forbidden_name(f"{node.module}.{alias.name}", is_called=False):
                yield Finding(node.lineno, f"import of {reason}")

    def _module(self, name: str, line: int) -> Iterator[Finding]:
        if not self._may_import(name.partition(".")[0]):
            yield Finding(line, f"import of {name}")

    def _may_import(self, root: str) -> bool:
        if root == "asyncio":
            return Rule.ASYNCIO in self.rules
        if root in ("pytest", "hypothesis"):
            return Rule.PYTEST in self.rules
        if root in ENTRY_POINT_MODULES and Rule.TERMINAL in self.rules:
            return True
        if root in FORBIDDEN_MODULES:
            return False
        return root in ALLOWED_PACKAGES or root in sys.stdlib_module_names

    def _use(self, node: ast.Name | ast.Attribute, *, is_called: bool) -> Iterator[Finding]:
        dotted = _dotted(node)
        if dotted is None:
            return
        head, dot, rest = dotted.partition(".")
        if head in self.origins:
            name = self.origins[head] + dot + rest
            if reason := self._forbidden_name(name, is_called=is_called):
                yield Finding(node.lineno, f"use of {reason}")
        elif is_called and not dot and self._forbidden_builtin(head):
            yield Finding(node.lineno, f"call of {head}()")

    def _forbidden_builtin(self, name: str) -> bool:
        if name == "print":
            return Rule.TERMINAL not in self.rules
        return name in FORBIDDEN_BUILTINS

    def _forbidden_name(self, name: str, *, is_called: bool) -> str | None:
        """Return what is forbidden about the full name, or None."""
        for prefix in _prefixes(name):
            if prefix in FORBIDDEN_NAMES:
                return prefix
            if prefix in TERMINAL_NAMES and Rule.TERMINAL not in self.rules:
                return prefix
        return self._forbidden_chance(name, is_called=is_called)

    def _forbidden_chance(self, name: str, *, is_called: bool) -> str | None:
        if name in SEEDED_MAKERS and (is_called or name not in RANDOM_TYPES):
            return None if Rule.SEEDING in self.rules else f"{name}(), which belongs to the edges"
        module, _, rest = name.rpartition(".")
        is_global = module in {"random", "numpy.random"} and rest != ""
        return f"{name}, which is global chance" if is_global and name not in RANDOM_TYPES else None


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else None
    return None


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])
