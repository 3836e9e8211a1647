"""`tidelog job build DIR [TOPIC]`: builds missing indexes and time maps on Spark; existing ones stay."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.job.rebuild import rebuild_options, run_rebuild
from tidelog.cli.job.running import JobOptions


@click.command("build")
@rebuild_options
def command(directory: str, options: JobOptions, **wanted: Any) -> None:
    """Build missing indexes and time maps from the logs; existing ones stay unchanged.

    Existing files that differ from their logs are only counted, as `left`: older releases of Kafka may have written them by other
    rules. `tidelog job verify` lists them. Without --out, no broker may be running. With --out, files missing below that folder
    are written there, as TOPIC-PARTITION/FILE. Exit code 1 if a log is damaged.
    """
    run_rebuild(options, directory, missing_only=True, **wanted)
