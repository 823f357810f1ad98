# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#   "grpcio-tools==1.62.3",
#   "mypy-protobuf==3.6.0",
# ]
# ///
"""Generates the modules of persys-proto from the files under proto/.

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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto" / "persys"
PACKAGE = ROOT / "packages" / "persys-proto" / "src" / "persys_proto"


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


def proto_names() -> list[str]:
    """The proto files by the names under which protoc is to see them."""
    return [
        f"persys_proto/{path.relative_to(PROTOS).as_posix()}"
        for path in sorted(PROTOS.rglob("*.proto"))
    ]


def plugin_argument(name: str) -> str:
    """Points protoc at a plugin of this environment, whatever PATH says."""
    return f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"


def run_protoc(output: Path) -> None:
    """Runs every generator into ``output``.

    The virtual directory ``persys_proto`` makes generated modules import each
    other by their installed names. Service and method names on the wire come
    from the package statements and are not touched by it.
    """
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-Ipersys_proto={PROTOS}"),
        *(plugin_argument("mypy"), plugin_argument("mypy_grpc")),
        *(f"--python_out={output}", f"--grpc_python_out={output}"),
        *(f"--mypy_out=quiet:{output}", f"--mypy_grpc_out=quiet:{output}"),
        *proto_names(),
    ]
    if subprocess.run(command, check=False).returncode:
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


def generated_files() -> dict[str, str]:
    """Relative path to text of everything the generators make."""
    with tempfile.TemporaryDirectory() as temporary:
        run_protoc(Path(temporary))
        base = Path(temporary) / "persys_proto"
        return {path.relative_to(base).as_posix(): tidy(path) for path in base.rglob("*.py*")}


def checked_in_files() -> dict[str, str]:
    """Relative path to text of the generated files in the package now."""
    return {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in PACKAGE.rglob("*_pb2*")
        if path.suffix in {".py", ".pyi"}
    }


def differences(wanted: dict[str, str], present: dict[str, str]) -> dict[str, str]:
    """Relative path to what is wrong with it: missing, stale or different."""
    found = dict.fromkeys(wanted.keys() - present.keys(), "missing")
    found |= dict.fromkeys(present.keys() - wanted.keys(), "stale (no proto file makes it)")
    found |= {
        path: "different"
        for path in wanted.keys() & present.keys()
        if wanted[path] != present[path]
    }
    return dict(sorted(found.items()))


def write(wanted: dict[str, str], changed: dict[str, str]) -> None:
    """Makes the named files of the package equal to what was generated."""
    for path in changed:
        target = PACKAGE / path
        if path not in wanted:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(wanted[path], encoding="utf-8")


def report(changed: dict[str, str]) -> None:
    """Prints one line for each file and what was wrong with it."""
    for path, what in changed.items():
        print(f"  {(PACKAGE / path).relative_to(ROOT)}: {what}")


def main() -> int:
    """Entry point; the exit code is 1 when ``--check`` found a difference."""
    parser = argparse.ArgumentParser(description="Generate the modules of persys-proto.")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="update the package")
    mode.add_argument("--check", action="store_true", help="fail if the package is out of date")
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
