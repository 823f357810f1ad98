"""What docs/simulator.md shows works."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/simulator.md"


def test_the_example_for_embedders_runs() -> None:
    """The page's program passes its own assertion."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), {})
