"""`tidelog job bootstrap DIR|HOST:PORT`: cuts topics in two, a history to reprocess and a stream that continues after it."""

from __future__ import annotations

import click

from tidelog.cli.client_options import config_option, reached_by
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import data_dir_of, source_argument
from tidelog.cli.printing import notices
from tidelog.cli.time_options import Moment, TimeType, echo_moment, run_clock, time_zone_option
from tidelog.times import format_time


@click.command("bootstrap")
@source_argument
@click.option("--topic", "--subscribe", "names", metavar="TOPIC", required=True, multiple=True, help="A topic; may be repeated.")
@time_zone_option
@click.option("--from", "start", type=TimeType(), help="Start of the history. [default: the log's start]")
@click.option("--cut", "cut_path", metavar="FILE", required=True, type=LocalPath(), help="The file of the cut.")
@config_option("history-source")
@click.option(
    "--history-source",
    callback=reached_by("history-source"),
    metavar="DIR|HOST:PORT",
    help="Read the history from this copy of the same log, with the same offsets.",
)
@job_options
def command(
    source: str, names: tuple[str, ...], start: Moment | None, cut_path: str, history_source: str | None, options: JobOptions
) -> None:
    """Read each partition's last stable offset once, store these offsets in FILE as the cut, and read the history before the cut.

    The history is every committed record below the cut with a timestamp at or after --from; --rows writes it. A stream started
    with tidelog.spark.bootstrap.Cut.load(FILE).stream(spark) begins exactly at the cut: no gap, no repeat. If FILE exists, its
    cut is used, so that a failed job can be started again with the same command.
    """
    from tidelog.spark.jobs.bootstrap import bootstrap, cut_at

    topics = list(dict.fromkeys(name.strip() for text in names for name in text.split(",") if name.strip()))
    clock = run_clock(click.get_current_context())
    cut, is_new = cut_at(source, topics, None if start is None else start.time_ms, cut_path, clock=clock)
    if is_new:
        echo_moment(start)
    else:
        since = "the log's start" if cut.start_ms is None else format_time(cut.start_ms)
        notices.note(f"the existing cut in {cut_path} is used: taken at {format_time(cut.taken_ms)}, history from {since}")

    # If the cut is stored and the history is read from elsewhere, the source is not needed.
    places, data_dir = [history_source or source], data_dir_of(source)
    run_job(options, "bootstrap", lambda spark, _: bootstrap(spark, cut, source=history_source), places=places, data_dir=data_dir)
