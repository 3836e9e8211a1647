"""`tidelog job build DIR [TOPIC]`: indexes and time maps that are missing, built on Spark; what is there stays."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.job.rebuild import rebuild_options, run_rebuild
from tidelog.cli.job.running import JobOptions


@click.command("build")
@rebuild_options
def command(directory: str, options: JobOptions, **wanted: Any) -> None:
    """Build the indexes and time maps that are missing from the logs; those that exist stay as they are.

    Files that differ from their logs are counted as `left`: older releases wrote by other rules (`tidelog job verify` says
    which). In place no broker may be running; with --out files are written below that folder, as TOPIC-PARTITION/FILE, where they
    are missing there. Exit code 1 if a log is damaged.
    """
    run_rebuild(options, directory, missing_only=True, **wanted)
