"""The core touches no clock, chance, file, socket or environment; and the checker of that works."""

from pathlib import Path

import pytest

from tests.architecture.purity import check_purity

CORE = Path(__file__).parents[2] / "packages/persys-core/src/persys_core"


def test_core_is_pure() -> None:
    """No module of the core does what its folder may not do."""
    impure = [
        f"persys_core/{path.relative_to(CORE)}:{finding.line}: {finding.what}"
        for path in sorted(CORE.rglob("*.py"))
        for finding in check_purity(path.read_text(), path.relative_to(CORE).as_posix())
    ]
    assert impure == []


def found(source: str, path: str = "placement/filters.py") -> list[str]:
    return [finding.what for finding in check_purity(source, path)]


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import os", "import of os"),
        ("import os.path as p", "import of os.path"),
        ("from pathlib import Path", "import of pathlib"),
        ("import time\n", "import of time"),
        ("from time import monotonic", "import of time"),
        ("import asyncio", "import of asyncio"),
        ("import socket", "import of socket"),
        ("import threading", "import of threading"),
        ("import subprocess", "import of subprocess"),
        ("from secrets import token_hex", "import of secrets"),
        ("import grpc.aio", "import of grpc.aio"),
        ("import requests", "import of requests"),
        ("import pytest", "import of pytest"),
        ("from persys_proto.control import v1", "import of persys_proto.control"),
        ("def f():\n    import os", "import of os"),
        ("open('x')", "call of open()"),
        ("print('x')", "call of print()"),
        ("input()", "call of input()"),
        ("eval('1')", "call of eval()"),
        ("import io\nio.open('x')", "use of io.open"),
        ("from uuid import uuid4", "import of uuid.uuid4"),
        ("import uuid\nuuid.uuid4()", "use of uuid.uuid4"),
        ("import sys\nsys.stdout.write('x')", "use of sys.stdout"),
        ("from datetime import datetime\ndatetime.now()", "use of datetime.datetime.now"),
        ("import datetime as d\nd.datetime.utcnow()", "use of datetime.datetime.utcnow"),
        ("from datetime import datetime as D\nf(now=D.now)", "use of datetime.datetime.now"),
        ("from datetime import date\ndate.today()", "use of datetime.date.today"),
        ("import random\nrandom.choice(x)", "use of random.choice, which is global chance"),
        ("import random\nf(key=random.random)", "use of random.random, which is global chance"),
        ("from random import shuffle", "import of random.shuffle, which is global chance"),
        ("import random\nrandom.SystemRandom()", "use of random.SystemRandom"),
        (
            "import random\nrandom.Random(1)",
            "use of random.Random(), which belongs to the edges",
        ),
        (
            "from random import Random\nRandom()",
            "use of random.Random(), which belongs to the edges",
        ),
        (
            "import numpy as np\nnp.random.default_rng(1)",
            "use of numpy.random.default_rng(), which belongs to the edges",
        ),
        (
            "import numpy as np\nnp.random.rand(3)",
            "use of numpy.random.rand, which is global chance",
        ),
        ("from random import *", "import of everything from random"),
    ],
)
def test_impure_code_is_found(source: str, what: str) -> None:
    """Each form of the clock, of chance and of the outside world is found in a pure folder."""
    assert found(source) == [what]


@pytest.mark.parametrize(
    "source",
    [
        "import attrs, math, heapq, collections.abc, dataclasses, enum",
        "import numpy as np\nx = np.zeros(3)",
        "from persys_core.model.ids import NodeId",
        "from random import Random\ndef f(rng: Random) -> int:\n    return rng.randrange(3)",
        "import random\ndef f(rng: random.Random) -> float:\n    return rng.random()",
        "import numpy as np\ndef f(rng: np.random.Generator) -> None: ...",
        "from datetime import datetime, UTC\nx = datetime(2026, 1, 1, tzinfo=UTC)",
        "def f(clock):\n    return clock.now()",
        "def f(time, open):\n    return time.monotonic()",
        "class Store:\n    def open(self): ...\nStore().open()",
        "from uuid import UUID, uuid5",
        "import io\nbuffer = io.StringIO()",
        "import sys\nlimit = sys.maxsize",
        "# open('x')\ntext = 'import os; print(1)'",
    ],
)
def test_pure_code_passes(source: str) -> None:
    """Injected clocks and chance, and look-alikes of forbidden names, are left alone."""
    assert found(source) == []


@pytest.mark.parametrize("folder", ["control", "memory", "sim", "testing"])
def test_outer_folders_may_use_asyncio(folder: str) -> None:
    """Only control, memory, sim and testing may use asyncio, and none of them the clock."""
    assert found("import asyncio", f"{folder}/x.py") == []
    assert found("import time", f"{folder}/x.py") == ["import of time"]


def test_folder_is_told_by_the_first_part_of_the_path() -> None:
    """A deeper folder or a module of the same name has no more rights than where it stands."""
    assert found("import asyncio", "model/control/x.py") == ["import of asyncio"]
    assert found("import asyncio", "control.py") == ["import of asyncio"]


@pytest.mark.parametrize(
    ("folder", "allowed"), [("sim", True), ("testing", True), ("memory", False)]
)
def test_chance_is_seeded_at_the_edges(folder: str, allowed: bool) -> None:
    """Generators are made from a seed in sim and testing alone."""
    source = "import random\nimport numpy\nrandom.Random(7)\nnumpy.random.default_rng(7)"
    assert (found(source, f"{folder}/x.py") == []) is allowed


def test_contract_suites_may_use_pytest() -> None:
    """The shipped suites need pytest to skip; nothing else of the core may see it."""
    assert found("import pytest", "testing/suite.py") == []
    assert found("import pytest", "sim/runner.py") == ["import of pytest"]


def test_an_entry_point_may_speak_to_its_terminal() -> None:
    """`python -m persys_core.sim` prints, times and starts processes, but opens no file."""
    source = "import sys, time, multiprocessing\nprint(sys.argv)\nopen('x')"
    assert found(source, "sim/__main__.py") == ["call of open()"]
    assert "call of print()" in found(source, "sim/runner.py")
    assert "call of print()" in found(source, "model/__main__.py")
