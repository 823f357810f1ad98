# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#   "grpcio-tools==1.62.3",
#   "mypy-protobuf==3.6.0",
# ]
# ///
"""Generates the modules of persys-proto and the messages of the etcd client, from proto/.

The etcd client depends on nothing else of the project, so its messages stand in its own folder; it
names etcd's methods itself and needs no service code.

``--write`` replaces what is checked in, ``--check`` fails and names the files
that are out of date. The block above is the one place that pins the generators;
it is the inline script metadata that nox and other runners install by.

Why these versions. Generated code refuses, or is refused by, runtimes older than
its generator: from 1.63 on the gRPC plugin emits code that demands at least its
own grpcio, and protoc 5.27 and later does the same for protobuf. grpcio-tools
1.62 is the last release free of both, and its output runs without a warning on
protobuf 4.25 to 7 and grpcio 1.60 to 1.85. mypy-protobuf 3.6.0 is the newest
that runs beside the protobuf 4 that this grpcio-tools requires. The generators
have no wheels for Python 3.13; the generated code does not care.

Decides nothing about the contract itself; that is written in the proto files.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto" / "persys"
PACKAGES = ROOT / "packages"


@dataclass(frozen=True)
class Target:
    """Where the modules of one folder of protos go.

    ``module`` is the folder as generated modules name it when they import each other; ``source``
    is a ``packages/*/src``. Without ``services`` there are messages only.
    """

    protos: tuple[str, ...]
    base: str
    source: Path
    module: str
    services: bool

    @property
    def package(self) -> Path:
        """The folder that the modules are checked in to."""
        return self.source / self.module


TARGETS = (
    Target(("agent", "control"), "", PACKAGES / "persys-proto/src", "persys_proto", True),
    Target(
        (".",), "etcd/v3", PACKAGES / "persys-adapters/src", "persys_adapters/etcd/client", False
    ),
)


def pinned_generators() -> dict[str, str]:
    """Distribution name to version, from this script's own metadata block."""
    text = Path(__file__).read_text(encoding="utf-8")
    block = re.search(r"^# /// script\n(.*?)^# ///$", text, re.MULTILINE | re.DOTALL)
    if block is None:
        sys.exit("generate_protos: this script lost its metadata block")
    metadata = tomllib.loads(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))
    return dict(requirement.split("==") for requirement in metadata["dependencies"])


def installed_version(name: str) -> str:
    """The version of a distribution in this environment, or ``none``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def require_pinned_generators() -> None:
    """Ends the program unless exactly the pinned generators are installed."""
    wrong = [
        f"{name}=={wanted} (found {found})"
        for name, wanted in pinned_generators().items()
        if (found := installed_version(name)) != wanted
    ]
    if wrong:
        sys.exit(f"generate_protos: needs {', '.join(wrong)}")


def proto_names(target: Target) -> list[str]:
    """The proto files of a target by the names under which protoc is to see them."""
    base = PROTOS / target.base
    return [
        f"{target.module}/{path.relative_to(base).as_posix()}"
        for folder in target.protos
        for path in sorted((base / folder).rglob("*.proto"))
    ]


def plugin_argument(name: str) -> str:
    """Points protoc at a plugin of this environment, whatever PATH says."""
    return f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"


def run_protoc(target: Target, output: Path) -> None:
    """Runs the generators of a target into ``output``.

    The virtual directory, ``persys_proto`` for one, makes generated modules import each other by
    their installed names. Service and method names on the wire come from the package statements
    and are not touched by it.
    """
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{target.module}={PROTOS / target.base}"),
        *(plugin_argument("mypy"), f"--python_out={output}", f"--mypy_out=quiet:{output}"),
    ]
    if target.services:
        command += [plugin_argument("mypy_grpc"), f"--grpc_python_out={output}"]
        command.append(f"--mypy_grpc_out=quiet:{output}")
    if subprocess.run([*command, *proto_names(target)], check=False).returncode:
        sys.exit("generate_protos: protoc failed")


def tidy(path: Path) -> str:
    """The text of a generated file as it is checked in.

    The generated servicer answers UNIMPLEMENTED to what a subclass leaves out,
    while its type stub calls every method abstract. The stub is made to agree.
    """
    text = path.read_text(encoding="utf-8")
    if path.name.endswith("_pb2_grpc.pyi"):
        return text.replace("    @abc.abstractmethod\n", "").replace(
            "Servicer(metaclass=abc.ABCMeta):", "Servicer:"
        )
    return text


def generated_files() -> dict[Path, str]:
    """Path to text of everything the generators make."""
    found: dict[Path, str] = {}
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as temporary:
            output = Path(temporary)
            run_protoc(target, output)
            found |= {
                target.source / path.relative_to(output): tidy(path)
                for path in output.rglob("*.py*")
            }
    return found


def checked_in_files() -> dict[Path, str]:
    """Path to text of the generated files in the packages now."""
    return {
        path: path.read_text(encoding="utf-8")
        for target in TARGETS
        for path in target.package.rglob("*_pb2*")
        if path.suffix in {".py", ".pyi"}
    }


def differences(wanted: dict[Path, str], present: dict[Path, str]) -> dict[Path, str]:
    """Path to what is wrong with it: missing, stale or different."""
    found = dict.fromkeys(wanted.keys() - present.keys(), "missing")
    found |= dict.fromkeys(present.keys() - wanted.keys(), "stale (no proto file makes it)")
    found |= {
        path: "different"
        for path in wanted.keys() & present.keys()
        if wanted[path] != present[path]
    }
    return dict(sorted(found.items()))


def write(wanted: dict[Path, str], changed: dict[Path, str]) -> None:
    """Makes the named files of the packages equal to what was generated."""
    for path in changed:
        if path not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")


def report(changed: dict[Path, str]) -> None:
    """Prints one line for each file and what was wrong with it."""
    for path, what in changed.items():
        print(f"  {path.relative_to(ROOT)}: {what}")


def main() -> int:
    """Entry point; the exit code is 1 when ``--check`` found a difference."""
    parser = argparse.ArgumentParser(description="Generate the modules of the protos.")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="update the packages")
    mode.add_argument("--check", action="store_true", help="fail if a package is out of date")
    arguments = parser.parse_args()
    require_pinned_generators()
    wanted = generated_files()
    changed = differences(wanted, checked_in_files())
    if not changed:
        print(f"generate_protos: {len(wanted)} files are up to date")
        return 0
    if arguments.write:
        write(wanted, changed)
        print("generate_protos: updated")
    else:
        print("generate_protos: out of date; run this script with --write")
    report(changed)
    return 1 if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
