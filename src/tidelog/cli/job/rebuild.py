"""`tidelog job rebuild DIR [TOPIC]`: `tidelog index rebuild` on Spark. `tidelog job build` is the same for missing files only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.cli import notices
from tidelog.cli.job.index_options import check_partitions, finding_lines, index_arguments
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.output import print_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def rebuild_options(function: Decorated) -> Decorated:
    """--out and --time-map, as `tidelog index rebuild` has them."""
    for option in (
        click.option("--time-map/--no-time-map", "time_maps", default=True, show_default=True, help="Build time maps, too."),
        click.option(
            "--out",
            "out_dir",
            metavar="DIR",
            type=click.Path(),
            help="Write the files below this folder; the data folder is only read.",
        ),
    ):
        function = option(function)
    return function


def run_rebuild(
    options: JobOptions, directory: str, topic: str | None, partitions: tuple[int, ...], *, missing_only: bool, **wanted: Any
) -> None:
    """Run the job `rebuild`, or `build` with `missing_only`."""
    check_partitions(topic, partitions)

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from tidelog.spark.jobs.indexes import rebuild_indexes

        return rebuild_indexes(spark, directory, topic, partitions, missing_only=missing_only, progress=progress, **wanted)

    def tell(result: JobResult) -> None:
        lines = finding_lines(result, as_json=options.as_json)
        if options.as_json:
            print_lines(lines)
        else:
            for line in lines:
                notices.complain(line)

    run_job(options, "build" if missing_only else "rebuild", work, data_dir=directory, tell=tell)


@click.command("rebuild", short_help="Build every index and time map anew from the logs.")
@index_arguments
@rebuild_options
@job_options
def command(
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    interval_bytes: int | None,
    out_dir: str | None,
    time_maps: bool,
    options: JobOptions,
) -> None:
    """Build the offset, time and transaction indexes and the time maps anew from the logs, which are never touched.

    The files are those of `tidelog index rebuild`. In place no broker may be running; with --out all files are written below that
    folder, as TOPIC-PARTITION/FILE, and DIR is only read. Exit code 1 if a log is damaged.
    """
    run_rebuild(
        options,
        directory,
        topic,
        partitions,
        missing_only=False,
        interval_bytes=interval_bytes,
        out_dir=out_dir,
        time_maps=time_maps,
    )
