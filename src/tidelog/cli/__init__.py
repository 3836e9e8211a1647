"""The command line: one file for each command, found and imported when it is asked for.

| module or room | owns |
|---|---|
| `app` | the group of commands, and how every run ends: exit codes, one-line errors, closed pipes |
| `lazy_group` | commands that are imported when they are called |
| `options`, `index_options` | the arguments and options that several commands share, and what a time resolved to |
| `commands/` | a file a command |
| `job/` | commands that Spark does |
| `printing/` | tables, output, notes, progress, log lines |

Below this package and `spark/` the time comes from a `Clock` that may be handed in. `docs/cli.md` fixes what scripts may rely on.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the `tidelog` command with the process's arguments, and exit."""
    try:
        from tidelog.cli.app import cli

        raise SystemExit(cli.main(prog_name="tidelog"))
    except KeyboardInterrupt:
        # While modules were still being imported; everything later is `app`'s to end.
        raise SystemExit(130) from None
