"""The README does not lie: its examples run, and what is generated in it is up to date."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["placement", "retry"])
def test_examples_run_and_print_what_they_say(block: str) -> None:
    """Each Python example runs as it stands and prints what its comment says."""
    run = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.splitlines() == re.findall(r"^# (.*)$", block, re.MULTILINE)


def test_generated_parts_are_up_to_date() -> None:
    """sample.env and the README's table follow from the table of settings."""
    check = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_settings.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert check.returncode == 0, check.stderr


def test_links_lead_somewhere() -> None:
    """Every relative link of the README and of docs/ names a file that exists."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
