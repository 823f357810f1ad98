"""The etcd client could be published on its own."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).parents[2] / ("packages/persys-adapters/src/persys_adapters/etcd/client")
ALLOWED = ("attrs", "google.protobuf", "grpc", "persys_adapters.etcd.client")


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case _:
                pass


def test_it_imports_nothing_but_its_own() -> None:
    """Beside the standard library it uses attrs, grpcio and protobuf, and itself."""
    names = {
        name
        for path in CLIENT.rglob("*.py")
        for name in imported(path.read_text())
        if name.partition(".")[0] not in sys.stdlib_module_names
    }
    foreign = {name for name in names if not name.startswith(ALLOWED)}
    assert "grpc.aio" in names
    assert foreign == set()
