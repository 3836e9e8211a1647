"""`tidelog job lag DIR|HOST:PORT`: how far behind all groups are, in records and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import group_isolation_option, run_clock, source_argument
from tidelog.client.offsets import Isolation
from tidelog.times import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


@click.command("lag", short_help="How far behind all groups are, by time.")
@source_argument
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be given several times.")
@group_isolation_option
@click.option(
    "--window", default="10m", show_default=True, metavar="TIME", help="The rates are those of this long before now: 90s, 1h."
)
@click.option(
    "--max-lag", metavar="TIME", help="End with 1 if a group is further behind than this, or lost records to retention: 5m, 2h."
)
@job_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    groups: tuple[str, ...],
    isolation: Isolation,
    window: str,
    max_lag: str | None,
    options: JobOptions,
) -> None:
    """Measure how far behind every group is, the one that is furthest behind first; with --rows each partition of each group.

    The lag in time is the age of the next record that a group would be given. Brokers are asked by the workers themselves; a
    folder's groups are read from the folder.
    """
    window_ms = parse_duration(window)
    if window_ms < 1:
        raise click.UsageError("--window must be longer than nothing.")
    max_lag_ms = None if max_lag is None else parse_duration(max_lag)
    clock = run_clock(ctx)

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs import lag as job

        return job.lag(
            spark,
            source,
            groups or None,
            isolation=isolation,
            window_ms=window_ms,
            max_lag_ms=max_lag_ms,
            clock=clock,
            progress=progress,
        )

    run_job(options, "lag", work, places=[source])
