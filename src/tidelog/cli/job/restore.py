"""`tidelog job restore BACKUP --to HOST:PORT`: restores a backup into a cluster; Spark's workers copy the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import check_brokers
from tidelog.cli.restore.command import planned, print_restored, request_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.restore.restoring import RestoreReport
    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


@click.command("restore")
@request_options
@job_options
def command(options: JobOptions, **wanted: Any) -> None:
    """Restore a backup into a running cluster, as `tidelog restore` does, with a task for each partition.

    The offset maps are in --work, which all workers must be able to access. Exit code 3 as for `tidelog restore`.
    """
    check_brokers(wanted["target"], "this job restores into a cluster only: to restore into a folder, run tidelog restore.")
    plan = planned(**wanted)
    done: list[RestoreReport] = []

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs.backup import restore_backup, restore_result

        done.append(restore_backup(spark, plan.plan, plan.work, verify=plan.verify, progress=progress))
        return restore_result(spark, done[0])

    run_job(options, "restore", work, places=[wanted["target"]])
    print_restored(done[0], options.as_json)
