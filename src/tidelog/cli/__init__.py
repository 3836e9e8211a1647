"""The command line: one file per command, imported when the command is called.

| module or room | owns |
|---|---|
| `app` | the command group; how every run ends: exit codes, one-line errors, closed pipes |
| `lazy_group` | commands that are imported when they are called |
| `completion`, `option_names`, `option_values` | completion in shells; unknown options; options without a value |
| `lean_imports` | imports pyarrow without numpy and pandas |
| `options`, `index_options` | arguments and options shared by several commands; parsing of times |
| `commands/` | one file per command |
| `job/` | commands that run on Spark |
| `printing/` | tables, output, notes, progress, log lines |

Packages below this one and `spark/` get the time from a `Clock` argument. `docs/cli.md` defines what scripts may rely on.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the `tidelog` command with the process's arguments, and exit."""
    try:
        from tidelog.cli import lean_imports
        from tidelog.cli.app import cli

        lean_imports.is_own_process = True
        raise SystemExit(cli.main(prog_name="tidelog"))
    except KeyboardInterrupt:
        # This happens while modules are being imported. `app` handles later interrupts.
        print("tidelog: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
