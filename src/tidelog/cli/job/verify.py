"""`tidelog job verify DIR [TOPIC]`: `tidelog index verify` on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.index_options import time_map_dir_option
from tidelog.cli.job.index_options import finding_lines, index_arguments
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.printing.output import print_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


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

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs.indexes import verify_indexes

        return verify_indexes(
            spark,
            directory,
            topic,
            partitions,
            interval_bytes=interval_bytes,
            time_map_dir=time_map_dir,
            progress=progress,
        )

    def report(result: JobResult) -> None:
        print_lines(finding_lines(result, as_json=options.as_json))

    run_job(options, "verify", work, places=[Path(directory)], selected=(topic, partitions), report=report)
