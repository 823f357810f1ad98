"""``python -m persys_server.settings``: prints ``sample.env`` or the table for the documentation.

Nothing is decided here; see ``render``.
"""

from __future__ import annotations

import argparse

from persys_server.settings.render import markdown_table, sample_env

__all__ = ["main"]


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m persys_server.settings", description="Print what the settings table says."
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--sample", action="store_true", help="the text of sample.env")
    wanted.add_argument("--markdown", action="store_true", help="tables for the documentation")
    print(sample_env() if parser.parse_args().sample else markdown_table(), end="")


if __name__ == "__main__":
    main()
