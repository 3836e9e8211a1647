"""The command line: one file for each command, found and imported when it is asked for.

| module | owns |
|---|---|
| app | the command group, and how every run ends: exit codes, one-line errors, closed pipes |
| options | the arguments and options that several commands share, and what a time resolved to |
| notices | what is worth saying on stderr besides the answer |
| layout | tables, sizes and escapes for people |
| output | where an answer goes: standard output, or a file that appears only when it is whole |
| progress | a bar on a terminal's stderr for work that takes long |
| serve, find, cat, stat, dump, retention, groups, index, import_, handover | a command each |
| explain, stat_brokers, dump_log, record_writers, index_options, kafka_admin | parts of these |
| serving, log_lines | a broker's process: start, signals, end; what its operator reads |
| job/ | commands that Spark does |

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
