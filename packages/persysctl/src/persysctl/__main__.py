"""`python -m persysctl` is `persysctl`."""

from __future__ import annotations

import sys

from persysctl.main import main

__all__: list[str] = []

sys.exit(main())
