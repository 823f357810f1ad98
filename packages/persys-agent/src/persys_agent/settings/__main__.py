"""``python -m persys_agent.settings``: prints the sample file or the tables of the documentation.

Nothing is decided here; see ``render``.
"""

from __future__ import annotations

import argparse

from persys_agent.settings.render import markdown_table, sample_file

__all__ = ["main"]


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m persys_agent.settings", description="Print what the settings table says."
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--sample", action="store_true", help="the text of agent_config.yaml")
    wanted.add_argument("--markdown", action="store_true", help="tables for the documentation")
    print(sample_file() if parser.parse_args().sample else markdown_table(), end="")


if __name__ == "__main__":
    main()
