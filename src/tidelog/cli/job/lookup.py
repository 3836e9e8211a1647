"""`tidelog job lookup DIR QUESTIONS`: the offset for a time, for millions of (topic, partition, timestamp) at once."""

from __future__ import annotations

import click

from tidelog.cli.client_options import bucket_options
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import folders_argument


@click.command("lookup")
@folders_argument
@click.argument("questions", metavar="QUESTIONS")
@job_options
@bucket_options
def command(directory: str, questions: str, options: JobOptions) -> None:
    """Find the first record at or after a time, for each row of QUESTIONS.

    QUESTIONS is a file or a folder of CSV, JSON (one object per line) or Parquet files with the columns topic, partition and
    timestamp: epoch milliseconds, or a time such as 2013-07-10T09:30:00Z (UTC without a zone). --rows writes these rows with all
    their columns, and with offset and found_timestamp.
    """
    from tidelog.spark.jobs.lookups import look_up
    from tidelog.spark.jobs.questions import check_questions, read_questions

    run_job(
        options,
        "lookup",
        lambda spark, progress: look_up(spark, directory, read_questions(spark, questions), progress),
        places=[directory],
        check=lambda: check_questions(questions),
    )
