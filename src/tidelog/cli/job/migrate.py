"""`tidelog job migrate DIR OUT`: a data folder in old message formats, rewritten in format v2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import directory_argument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


@click.command("migrate")
@directory_argument
@click.argument("out_dir", metavar="OUT", type=LocalPath())
@click.option("--topic", help="Only this topic.")
@job_options
def command(directory: str, out_dir: str, topic: str | None, options: JobOptions) -> None:
    """Write the data folder DIR, whose segments are in message formats v0 and v1 or mixed, again in v2, as the new folder OUT.

    Kept are offsets, keys, values, timestamps and their type, codecs, and the times of the files; batches of v2 are copied as
    they are. All indexes and time maps are built. DIR is only read. OUT must not be there, or be empty; until all is done it is
    called OUT.unfinished. Damage ends the job, but for an append that a crash has torn at a log's end: it is left out, and
    reported.
    """

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs.migrate import migrate

        return migrate(spark, directory, out_dir, topic, progress=progress)

    run_job(options, "migrate", work, places=[Path(directory)])
