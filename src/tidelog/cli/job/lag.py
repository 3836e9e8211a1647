"""`tidelog job lag DIR|HOST:PORT`: the lag of all groups, in records and in time."""

from __future__ import annotations

import click

from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import lag_options, lag_times, source_argument
from tidelog.cli.time_options import run_clock
from tidelog.model import Isolation
from tidelog.sources.group_lags import check_exist


@click.command("lag")
@source_argument
@lag_options
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
    """Measure the lag of every group, the largest first; with --rows each partition of each group.

    The lag in time is the age of the next record that a group would get. The workers connect to brokers themselves; a folder's
    groups are read from the folder.
    """
    from tidelog.spark.jobs.lag import lag

    window_ms, max_lag_ms = lag_times(window, max_lag)
    clock = run_clock(ctx)
    run_job(
        options,
        "lag",
        lambda spark, progress: lag(
            spark,
            source,
            groups or None,
            isolation=isolation,
            window_ms=window_ms,
            max_lag_ms=max_lag_ms,
            clock=clock,
            progress=progress,
        ),
        places=[source],
        check=lambda: check_exist(groups, source),
    )
