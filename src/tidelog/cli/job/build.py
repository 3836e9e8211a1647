"""`tidelog job build DIR [TOPIC]`: indexes and time maps that are missing, built on Spark; what is there stays."""

from __future__ import annotations

import click

from tidelog.cli.job.index_options import index_arguments
from tidelog.cli.job.rebuild import rebuild_options, run_rebuild
from tidelog.cli.job.running import JobOptions, job_options


@click.command("build", short_help="Build the indexes and time maps that are missing.")
@index_arguments
@rebuild_options
@job_options
def command(
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    interval_bytes: int | None,
    out_dir: str | None,
    time_maps: bool,
    options: JobOptions,
) -> None:
    """Build the indexes and time maps that are missing from the logs; those that are there stay as they are.

    Those that differ from what their logs say are counted as `left`: older releases wrote by other rules, `tidelog job verify`
    tells. In place no broker may be running; with --out files are written below that folder, as TOPIC-PARTITION/FILE, where they
    are missing there. Exit code 1 if a log is damaged.
    """
    run_rebuild(
        options,
        directory,
        topic,
        partitions,
        missing_only=True,
        interval_bytes=interval_bytes,
        out_dir=out_dir,
        time_maps=time_maps,
    )
