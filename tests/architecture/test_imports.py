"""The import contracts of pyproject.toml hold, and each of them would notice a breach."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "persys_proto",
    "persys_core",
    "persys_adapters",
    "persys_server",
    "persys_agent",
    "persysctl",
)

# One breach for each contract: the contract, the module that breaks it, what it imports.
BREACHES = [
    ("The generated code imports nothing of ours", "persys_proto.a", "persys_core"),
    ("The core imports nothing of ours", "persys_core.a", "persys_proto"),
    (
        "The core stands apart from transport, storage and logging libraries",
        "persys_core.b",
        "grpc",
    ),
    ("The adapters import core and proto only", "persys_adapters.a", "persys_server"),
    ("The agent imports core and proto only", "persys_agent.a", "persys_adapters"),
    ("The command line client imports proto only", "persysctl.a", "persys_core"),
    ("The server does not import the command line client", "persys_server.a", "persysctl"),
    ("No adapter imports another technology", "persys_adapters.etcd", "persys_adapters.redis"),
    (
        "Only etcd and sqlite build on the key-value contract",
        "persys_adapters.redis",
        "persys_adapters.kv",
    ),
    (
        "The etcd client depends on nothing else of the project",
        "persys_adapters.etcd.client",
        "persys_core.model",
    ),
    (
        "The pure folders of the core do not know the outer ones",
        "persys_core.model",
        "persys_core.sim",
    ),
    ("Only the container knows dependency-injector", "persys_server.b", "dependency_injector"),
]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages that are importable from `folder`, by its contracts."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def contract_names() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return [contract["name"] for contract in contracts]


def write_module(folder: Path, name: str, text: str) -> None:
    path = folder.joinpath(*name.split("."), "__init__.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def toy_workspace(tmp_path: Path) -> Path:
    """Lay out six toy packages with the folders that the contracts name, and our contracts."""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for package in PACKAGES:
        write_module(tmp_path, package, "")
    for folder in (
        *("agent_grpc", "coredns", "etcd", "etcd.client", "kv", "records", "redis", "rgw"),
        *("sqlite", "vault"),
    ):
        write_module(tmp_path, f"persys_adapters.{folder}", "")
    for folder in ("model", "sim"):
        write_module(tmp_path, f"persys_core.{folder}", "")
    write_module(tmp_path, "persys_server.container", "import dependency_injector.containers\n")
    write_module(tmp_path, "persys_adapters.etcd", "import persys_adapters.kv\n")
    return tmp_path


def test_contracts_hold() -> None:
    """The packages import one another as the architecture says."""
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_permitted_imports_pass(toy_workspace: Path) -> None:
    """The container and the key-value contract may be used where they belong."""
    result = lint_imports(toy_workspace)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(contract_names())} kept, 0 broken" in result.stdout


def test_every_contract_notices_a_breach(toy_workspace: Path) -> None:
    """With one breach for each contract, every contract is broken."""
    for _, module, imported in BREACHES:
        write_module(toy_workspace, module, f"import {imported}\n")
    result = lint_imports(toy_workspace)
    broken = re.findall(r"^(.*?) BROKEN", result.stdout, re.MULTILINE)
    assert sorted(broken) == sorted(contract_names()) == sorted(name for name, *_ in BREACHES)
