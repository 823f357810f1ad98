"""Every benchmark, one after the other, each in a process of its own: `python -m benchmarks`.

Names of benchmarks as arguments (`placement reconcile_pass`) choose some of them.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = ("placement", "reconcile_pass", "store_writes", "etcd_client", "heartbeats")


def main(wanted: list[str]) -> int:
    """Run them; the exit code is that of the first that failed."""
    unknown = sorted(set(wanted) - set(BENCHMARKS))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
        return 2
    for name in wanted or BENCHMARKS:
        code = subprocess.call([sys.executable, "-m", f"benchmarks.{name}"])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
