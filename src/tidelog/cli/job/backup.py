"""`tidelog job backup HOST:PORT TARGET`: takes a point of a backup; Spark's workers copy the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.backup.take import report_point, selection_of, selection_options
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import check_brokers, source_argument
from tidelog.cli.printing import notices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.backup.manifest import Point
    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


@click.command("backup")
@source_argument
@click.argument("target", metavar="TARGET")
@selection_options
@job_options
def command(
    source: str,
    target: str,
    patterns: tuple[str, ...],
    internal: bool,
    no_groups: bool,
    target_config: str | None,
    options: JobOptions,
) -> None:
    """Take a point of a backup of a cluster, as `tidelog backup` does, with a task for each partition that has new records.

    The format and the manifests are the same: this job and `tidelog backup` can continue each other's backups. TARGET is a
    bucket, or a folder that all workers can access. Exit code 3 as for `tidelog backup`.
    """
    check_brokers(source, "this job backs up brokers only: to back up a folder, run tidelog backup.")
    place, selection = selection_of(source, target, patterns, internal, no_groups, target_config)
    taken: list[Point] = []

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs.backup import point_result, take_backup

        taken.append(take_backup(spark, source, place.address, selection, progress))
        return point_result(spark, taken[0])

    run_job(options, "backup", work, places=[source], report=lambda _: report_point(taken[0], options.as_json))
    if taken[0].gaps or taken[0].incomplete:
        raise click.exceptions.Exit(notices.INCOMPLETE)
