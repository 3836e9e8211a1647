"""`tidelog job verify-backup BACKUP`: like `tidelog backup verify`, but Spark's workers check the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.backup.verify import print_findings
from tidelog.cli.client_options import bucket_options, reached
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.printing import notices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.backup.verify import BackupReport
    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


@click.command("verify-backup")
@click.argument("address", metavar="BACKUP", callback=reached)
@bucket_options
@job_options
def command(address: str, options: JobOptions) -> None:
    """Check that a backup is complete and undamaged, as `tidelog backup verify` does. Exit code 3 if it is not."""
    done: list[BackupReport] = []

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs.backup import verify_result, verify_whole

        done.append(verify_whole(spark, address, progress))
        return verify_result(spark, done[0])

    run_job(options, "verify-backup", work, report=lambda _: print_findings(done[0], options.as_json))
    if done[0].findings:
        raise click.exceptions.Exit(notices.INCOMPLETE)
