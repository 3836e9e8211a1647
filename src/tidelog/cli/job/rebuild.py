"""`tidelog job rebuild DIR [TOPIC]`: `tidelog index rebuild` on Spark. `tidelog job build` builds only missing files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.index_options import out_option, time_maps_option
from tidelog.cli.job.index_options import finding_lines, index_arguments
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.printing import notices
from tidelog.cli.printing.output import print_lines

if TYPE_CHECKING:
    from tidelog.spark.jobs.result import JobResult


def rebuild_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of `build` and `rebuild`, like those of `tidelog index rebuild`."""
    return index_arguments(out_option(time_maps_option(job_options(function))))


def run_rebuild(options: JobOptions, directory: str, *, missing_only: bool, **wanted: Any) -> None:
    """Run the job `rebuild`, or with `missing_only` the job `build`; `wanted` has further arguments of `rebuild_indexes`."""
    from tidelog.spark.jobs.indexes import rebuild_indexes

    def report(result: JobResult) -> None:
        lines = finding_lines(result, as_json=options.as_json)
        if options.as_json:
            print_lines(lines)
        else:
            for line in lines:
                notices.complain(line)

    run_job(
        options,
        "build" if missing_only else "rebuild",
        lambda spark, progress: rebuild_indexes(spark, directory, missing_only=missing_only, progress=progress, **wanted),
        places=[Path(directory)],
        selected=(wanted["topic"], wanted["partitions"]),
        report=report,
    )


@click.command("rebuild")
@rebuild_options
def command(directory: str, options: JobOptions, **wanted: Any) -> None:
    """Build the offset, time and transaction indexes and the time maps from the logs, which are not changed.

    The files are the same as those of `tidelog index rebuild`. Without --out, no broker may be running. With --out, all files are
    written below that folder, as TOPIC-PARTITION/FILE, and DIR is only read. Exit code 1 if a log is damaged.
    """
    run_rebuild(options, directory, missing_only=False, **wanted)
