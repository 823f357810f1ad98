"""`python -m persys_agent`: the same as the command `persys-agent`."""

import sys

from persys_agent.main import main

if __name__ == "__main__":
    sys.exit(main())
