"""`tidelog job verify DIR [TOPIC]`: `tidelog index verify` on Spark."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.index_options import time_map_dir_option
from tidelog.cli.job.index_options import finding_lines, index_arguments
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.printing.output import print_lines


@click.command("verify")
@index_arguments
@time_map_dir_option
@job_options
def command(
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    interval_bytes: int | None,
    time_map_dir: str | None,
    options: JobOptions,
) -> None:
    """Check that the offset, time and transaction indexes and the time maps of a folder are correct and complete.

    The rules are those of `tidelog index verify`; nothing is written. Exit code 1 if there is a fault.
    """
    from tidelog.spark.jobs.indexes import verify_indexes

    run_job(
        options,
        "verify",
        lambda spark, progress: verify_indexes(
            spark,
            directory,
            topic,
            partitions,
            interval_bytes=interval_bytes,
            time_map_dir=time_map_dir,
            progress=progress,
        ),
        places=[Path(directory)],
        selected=(topic, partitions),
        report=lambda result: print_lines(finding_lines(result, as_json=options.as_json)),
    )
