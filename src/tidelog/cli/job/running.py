"""Runs a job from the shell: its options, Spark session, progress and result.

| | goes to |
|---|---|
| the summary, a table or JSON lines | standard output |
| progress, and Spark's startup time | stderr, if that is a terminal |
| every row, with `--rows` | a folder of Parquet files, or one file of CSV or JSON lines |
| the output of Spark's JVM | nowhere; `TIDELOG_TRACEBACK=1` shows it, and Spark's own errors in full |

Under spark-submit, Spark's session, settings and messages are left to spark-submit.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.job.rows_output import check_target, write_rows
from tidelog.cli.job.task_bar import TaskBar
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import table
from tidelog.cli.printing.missing import end_with_missing, print_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.terminal import stderr_is_terminal
from tidelog.sources.opening import kind_of, open_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult, Summary

FAULTS_FOUND = 1
"""The exit code of a job that found faults."""


@dataclass(frozen=True)
class JobOptions:
    """The values of the options that all jobs have."""

    master: str | None = None
    config: tuple[tuple[str, str], ...] = ()
    as_json: bool = False
    rows_target: str | None = None


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all jobs have; the command gets them as one argument, `options`."""

    @functools.wraps(function)
    def command(
        *args: Any,
        job_master: str | None,
        job_config: tuple[tuple[str, str], ...],
        as_json: bool,
        rows_target: str | None,
        **rest: Any,
    ) -> Any:
        return function(*args, options=JobOptions(job_master, job_config, as_json, rows_target), **rest)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_job(
    options: JobOptions,
    name: str,
    work: Callable[[SparkSession, Progress], JobResult],
    *,
    places: Sequence[str | Path] = (),
    data_dir: str | None = None,
    selected: tuple[str | None, Sequence[int]] | None = None,
    check: Callable[[], object] | None = None,
    report: Callable[[JobResult], object] | None = None,
) -> None:
    """Start Spark, let `work` do the job, and print the result. Exit code 1 for faults, 3 if records are missing from the folder.

    `places` are the data folders (a Path, or a text that is not an address) and the brokers that the job needs. Three kinds of
    errors are reported before Spark starts: a missing place; an unknown topic or partition of the first folder, if the command
    passes its topics and partitions as `selected`; and every error that `check` raises. Rows are not written below `data_dir`,
    because only a data folder's owner writes there. By default, `data_dir` is the first folder of `places`. `report` prints the
    output before the summary.
    """
    if data_dir is None:
        data_dir = next((str(place) for place in places if kind_of(place).is_local), None)
    if options.rows_target is not None:
        check_target(options.rows_target, data_dir)
    for place in dict.fromkeys(places):
        open_source(place).close()
    if selected is not None and data_dir is not None:
        _check_partitions(data_dir, *selected)
    if check is not None:
        check()
    from tidelog.spark.jobs.job_session import job_session

    began = time.monotonic()
    with job_session(f"tidelog job {name}", options.master, dict(options.config)) as spark:
        _print_started(spark, time.monotonic() - began)
        with TaskBar(name) as bar:
            result = work(spark, bar.show)
        if report is not None:
            report(result)
        if options.rows_target is not None:
            write_rows(result.rows, options.rows_target, data_dir)
        _print_summary(result.summary, as_json=options.as_json)
        print_missing(result.missing, as_json=options.as_json)
        faults = result.faults
    if faults:
        raise click.exceptions.Exit(FAULTS_FOUND)
    end_with_missing(result.missing)


def _check_partitions(data_dir: str, topic: str | None, partitions: Sequence[int]) -> None:
    from tidelog.check.partitions import select_partitions
    from tidelog.reader.log_dir import LogDir

    log_dir = LogDir(data_dir)
    for name, partition in select_partitions(log_dir, topic, partitions) if topic is not None else ():
        log_dir.directory(name, partition)


def _print_started(spark: SparkSession, took_s: float) -> None:
    if stderr_is_terminal():
        notices.print_line(f"Spark {spark.version} on {spark.sparkContext.master}, ready after {took_s:.1f} s")


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        from tidelog.cli.job.rows_output import json_object

        print_lines(json_object(dict(zip(summary.columns, row, strict=True))) for row in summary.rows)
    else:
        print_lines(table(summary.columns, summary.rows))


def _key_value(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", ctx, param)
        pairs.append((key, text))
    return tuple(pairs)


_OPTIONS = (
    click.option("--master", "job_master", metavar="URL", help="Spark's master. [default: local[*], all local processors]"),
    click.option(
        "--conf",
        "job_config",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_key_value,
        help="A Spark property; may be repeated.",
    ),
    click.option("--json", "as_json", is_flag=True, help="The summary as JSON, one object per line, for scripts."),
    click.option(
        "--rows",
        "rows_target",
        metavar="PATH",
        help="Write every row: FILE.csv, FILE.json (a JSON object per line), or any other name for a folder of Parquet files.",
    ),
)
