"""Every proof, one after the other, each in a process of its own: `python -m proofs`.

Names of proofs as arguments (`rolling_drain`) choose some of them.
"""

from __future__ import annotations

import subprocess
import sys

PROOFS = (
    "rolling_drain",
    "etcd_loss",
    "etcd_cluster",
    "failover",
    "oversubscription",
    "elastic",
)


def main(wanted: list[str]) -> int:
    """Run them all; the exit code is that of the first that failed."""
    unknown = sorted(set(wanted) - set(PROOFS))
    if unknown:
        print(f"no such proof: {', '.join(unknown)}; there are: {', '.join(PROOFS)}")
        return 2
    codes = [subprocess.call([sys.executable, "-m", f"proofs.{name}"]) for name in wanted or PROOFS]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
