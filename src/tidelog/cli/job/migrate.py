"""`tidelog job migrate DIR OUT`: copies a data folder, and rewrites old message formats as v2."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import directory_argument


@click.command("migrate")
@directory_argument
@click.argument("out_dir", metavar="OUT", type=LocalPath())
@click.option("--topic", help="Only this topic.")
@job_options
def command(directory: str, out_dir: str, topic: str | None, options: JobOptions) -> None:
    """Copy the data folder DIR to the new folder OUT, and rewrite all batches of message formats v0 and v1 as v2.

    Offsets, keys, values, timestamps and their type, codecs, and the times of the files are kept; v2 batches are copied
    unchanged. All indexes and time maps are built. DIR is only read. OUT must be missing or empty; until everything is
    done, it is named OUT.unfinished. Damage ends the job, except an append that a crash has truncated at a log's end: it is
    left out and reported.
    """
    from tidelog.check.migration.folder_migration import check_out_dir
    from tidelog.spark.jobs.migrate import migrate

    run_job(
        options,
        "migrate",
        lambda spark, progress: migrate(spark, directory, out_dir, topic, progress=progress),
        places=[Path(directory)],
        selected=(topic, ()),
        check=lambda: check_out_dir(Path(directory).absolute(), Path(out_dir).absolute()),
    )
