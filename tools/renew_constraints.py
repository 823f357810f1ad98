"""Write constraints.txt anew: the newest versions that the bounds of the packages allow.

They are resolved in a fresh environment, on the oldest Python that is supported, so that the pins
hold on all of them. The environment is thrown away; `./dev` picks the new pins up by itself.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST = (3, 11)
HEADER = """\
# Exact versions of everything that ./dev installs, transitive packages included.
# Renew with `./dev nox -s constraints` on Python 3.11, the oldest that is supported.
"""


def resolve(folder: str) -> list[str]:
    """Install everything into `folder` without constraints and return the pins, sorted."""
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", folder], check=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check"]
    projects = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
    requirements = ["-r", str(ROOT / "requirements-dev.txt")]
    subprocess.run([*pip, "install", "-q", *requirements, *map(str, projects)], check=True)
    exclude = [f"--exclude={project.name}" for project in projects]
    frozen = subprocess.run(
        [*pip, "freeze", "--all", "--exclude=pip", *exclude],
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(frozen.stdout.splitlines(), key=str.lower)


def main() -> None:
    """Resolve and write."""
    if sys.version_info[:2] != OLDEST:
        sys.exit(f"run this on Python {OLDEST[0]}.{OLDEST[1]}, the oldest that is supported")
    with tempfile.TemporaryDirectory() as folder:
        pins = resolve(folder)
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(pins) + "\n")


if __name__ == "__main__":
    main()
