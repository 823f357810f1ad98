"""Sizes and conventions hold everywhere; and the checkers of that work."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture import shape

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "packages"
GENERATED = ("_pb2.py", "_pb2_grpc.py")


def modules(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not path.name.endswith(GENERATED):
                yield path


def offences(paths: Iterable[Path], check: Callable[[str], Iterator[str]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in paths
        for finding in check(path.read_text())
    ]


def test_nothing_is_oversized() -> None:
    """Functions, classes and files stay within the sizes of the architecture."""
    paths = [
        *modules(PACKAGES, ROOT / "tools", ROOT / "benchmarks", ROOT / "proofs"),
        ROOT / "noxfile.py",
    ]
    assert offences(paths, shape.oversized) == []


def test_ports_are_narrow() -> None:
    """A port asks at most eight methods of whoever implements it."""
    ports = modules(PACKAGES / "persys-core/src/persys_core/ports")
    assert offences(ports, shape.find_wide_protocols) == []


def test_every_test_says_its_rule() -> None:
    """Each test, and each rule of the shipped contract suites, has a docstring."""
    paths = modules(ROOT / "tests", PACKAGES / "persys-core/src/persys_core/testing")
    assert offences(paths, shape.find_undocumented_tests) == []


def test_unit_tests_patch_nothing() -> None:
    """A unit test that needs patching asks for a redesign of what it tests."""
    assert offences(modules(ROOT / "tests/unit"), shape.find_patching) == []


def test_injection_stays_in_the_container() -> None:
    """Neither @inject nor Provide is used outside persys_server/container.py."""
    container = PACKAGES / "persys-server/src/persys_server/container.py"
    paths = [path for path in modules(PACKAGES) if path != container]
    assert offences(paths, shape.find_injection) == []


def test_every_package_is_typed() -> None:
    """Each of the packages says to type checkers that it has types."""
    packages = [path.parent for path in PACKAGES.glob("*/pyproject.toml")]
    untyped = [path.name for path in packages if not list(path.glob("src/*/py.typed"))]
    assert packages
    assert untyped == []


def function_of(lines: int, docstring: str = "") -> str:
    body = [docstring] if docstring else []
    return "\n".join(["def f():", *body, *["    x = 1"] * (lines - 1)]) + "\n"


def class_of(methods: int, head: str = "class C:", docstring: str = "", prefix: str = "m") -> str:
    body = [f"    def {prefix}{number}(self): ..." for number in range(methods)]
    return "\n".join([head, *([f'    """{docstring}"""'] if docstring else []), *body]) + "\n"


def test_function_size_leaves_the_docstring_out() -> None:
    """Sixty lines pass, sixty-one do not, and a docstring costs nothing."""
    assert not list(shape.oversized(function_of(60)))
    assert not list(shape.oversized(function_of(60, '    """One.\n\n    More.\n    """')))
    assert list(shape.oversized(function_of(61))) == ["1: f has 61 lines (at most 60)"]
    assert list(shape.oversized("async " + function_of(61)))


def test_file_size_may_have_a_reason() -> None:
    """Above 400 lines a file needs a reason in its docstring."""
    filler = "x = 1\n" * 400
    assert not list(shape.oversized(filler))
    assert list(shape.oversized(filler + "x = 1\n"))
    assert list(shape.oversized('"""Doc.\n\nSize:\n"""\n' + filler))
    assert not list(shape.oversized('"""Doc.\n\nSize: one table.\n"""\n' + filler))


def test_class_size_may_have_a_reason() -> None:
    """Above 12 public methods a class needs a reason; private ones and test rules do not count."""
    assert not list(shape.oversized(class_of(12)))
    assert len(list(shape.oversized(class_of(13)))) == 1
    assert not list(shape.oversized(class_of(13, docstring="C.\n\n    Size: a facade.\n    ")))
    assert not list(shape.oversized(class_of(30, prefix="_m")))
    assert not list(shape.oversized(class_of(30, prefix="test_")))


@pytest.mark.parametrize("base", ["Protocol", "typing.Protocol", "Protocol[T]"])
def test_wide_protocols_are_found(base: str) -> None:
    """Nine methods are one too many, however the protocol is spelled; other classes are free."""
    assert not list(shape.find_wide_protocols(class_of(8, f"class C({base}):")))
    assert len(list(shape.find_wide_protocols(class_of(9, f"class C({base}):")))) == 1
    assert not list(shape.find_wide_protocols(class_of(9)))


def test_undocumented_tests_are_found() -> None:
    """Plain, async and method tests need a docstring; helpers do not."""
    source = "def helper(): ...\nasync def test_a(): ...\nclass T:\n    def test_b(self): ...\n"
    assert len(list(shape.find_undocumented_tests(source))) == 2
    assert not list(shape.find_undocumented_tests('def test_a():\n    """Rule."""\n'))


@pytest.mark.parametrize(
    "source",
    [
        "from unittest.mock import patch",
        "from unittest.mock import *",
        "from unittest import mock\nmock.patch('x')",
        "import unittest.mock\nunittest.mock.patch.object(a, 'b')",
    ],
)
def test_patching_is_found(source: str) -> None:
    """Each way to reach unittest.mock.patch is found."""
    assert len(list(shape.find_patching(source))) == 1


def test_other_doubles_are_left_alone() -> None:
    """Other names of unittest.mock, and other things called patch, are not patching."""
    assert not list(shape.find_patching("from unittest.mock import sentinel\nnode.patch()"))


@pytest.mark.parametrize(
    "source",
    [
        "from dependency_injector.wiring import Provide, inject",
        "from dependency_injector import wiring",
        "import dependency_injector.wiring",
    ],
)
def test_injection_is_found(source: str) -> None:
    """Each way to reach the wiring of dependency-injector is found."""
    assert len(list(shape.find_injection(source))) == 1
