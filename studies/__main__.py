"""`python -m studies` runs the studies and writes the report."""

from __future__ import annotations

from studies.command import command

if __name__ == "__main__":
    command.main(prog_name="python -m studies")
