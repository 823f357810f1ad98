"""Build every package as a wheel into dist/ and prove what users will rely on.

Each wheel says that it is typed, and `persys-core` alone brings nothing but attrs and numpy.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CORE_BRINGS = {"persys-core", "attrs", "numpy"}


def run(*command: str | Path) -> str:
    """Run a command and return what it printed; a failure ends the script with its output."""
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def build_wheels() -> list[Path]:
    """Build one wheel for each package, from an empty dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
        run(
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", DIST, project.parent),
        )
    return sorted(DIST.glob("*.whl"))


def untyped(wheel: Path) -> bool:
    """Tell whether a wheel lacks the py.typed marker."""
    with zipfile.ZipFile(wheel) as archive:
        return not any(name.endswith("/py.typed") for name in archive.namelist())


def brought_by_core(core: Path) -> set[str]:
    """Install the core alone in a fresh environment, import it, and name what is installed."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "virtualenv", "--quiet", folder)
        python = Path(folder) / "bin/python"
        run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", core)
        run(python, "-I", "-c", "import persys_core")
        listed = run(python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    return {package["name"] for package in json.loads(listed)} - {"pip", "setuptools", "wheel"}


def main() -> None:
    """Build, check and say so."""
    wheels = build_wheels()
    if bad := [wheel.name for wheel in wheels if untyped(wheel)]:
        sys.exit(f"no py.typed in {', '.join(bad)}")
    [core] = DIST.glob("persys_core-*.whl")
    brought = brought_by_core(core)
    if brought != CORE_BRINGS:
        sys.exit(f"persys-core alone brings {sorted(brought)}, not {sorted(CORE_BRINGS)}")
    print(f"{len(wheels)} wheels in {DIST.relative_to(ROOT)}/, all typed; the core stands alone")


if __name__ == "__main__":
    main()
