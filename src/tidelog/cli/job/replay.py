"""`tidelog job replay DIR|HOST:PORT TOPIC`: copies a time window of a topic to another topic or cluster."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.client_options import config_option, reached_by
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import check_brokers, data_dir_of, partition_option, source_argument, topic_argument
from tidelog.cli.time_options import Moment, echo_moment, time_range_options
from tidelog.errors import InvalidArgumentError
from tidelog.times import parse_duration


def _shift_ms(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    text = "0" if value is None else value.strip()
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    try:
        return sign * parse_duration(text)
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("replay")
@source_argument
@topic_argument
@partition_option
@time_range_options(
    "Start of the window. [default: the log's start]",
    "End of the window, exclusive; +15m is relative to --from. [default: the log's end]",
)
@config_option("target")
@click.option(
    "--target", callback=reached_by("target"), metavar="HOST:PORT", help="The cluster to copy to. [default: the source's]"
)
@click.option("--target-topic", metavar="TOPIC", help="The topic to copy to. [default: the same name]")
@click.option(
    "--map", "map_dir", metavar="DIR", required=True, type=LocalPath(), help="Folder for the offset map and the progress."
)
@click.option(
    "--shift-times", "shift_ms", metavar="[-]DURATION", callback=_shift_ms, help="Shift all timestamps by this much: 7d, -1h30m."
)
@click.option(
    "--times",
    "times",
    type=click.Choice(["producer", "log"]),
    default="producer",
    show_default=True,
    help="Timestamp to keep for records of a LogAppendTime topic: the producer's, or the log's.",
)
@job_options
def command(
    source: str,
    topic: str,
    partitions: tuple[int, ...],
    start: Moment | None,
    end: Moment | None,
    target: str | None,
    target_topic: str | None,
    map_dir: str,
    shift_ms: int,
    times: str,
    options: JobOptions,
) -> None:
    """Copy every record of the window [--from, --to) to the same partition of the target topic, in transactions, batch by batch.

    Each record is copied once, even if the job is killed: started again with the same --map, it continues with the same window.
    The map has the target offset of each record; --rows writes the map. If the topic to copy to is missing, it is created
    without retention.
    """
    from tidelog.copying.column_rebuilding import TimeRule
    from tidelog.copying.replay import ReplayRequest, read_replay, remembered

    if target is None:
        target = check_brokers(source, "give --target: the source is a folder, which cannot be the target.")
    echo_moment(start)
    echo_moment(end)
    request = ReplayRequest(
        source=source,
        topic=topic,
        target=target,
        target_topic=topic if target_topic is None else target_topic,
        start_ms=None if start is None else start.time_ms,
        end_ms=None if end is None else end.time_ms,
        partitions=tuple(sorted(set(partitions))) or None,
        shift_ms=shift_ms,
        time=TimeRule(times),
    )
    request = remembered(request, map_dir, is_relative=[moment is not None and moment.is_relative for moment in (start, end)])

    from tidelog.spark.jobs.replay import replay

    # If a resumed replay has already copied everything, the source is not needed.
    places = [source, target] if read_replay(Path(map_dir).absolute()) is None else [target]
    run_job(
        options,
        "replay",
        lambda spark, progress: replay(spark, request, map_dir, progress=progress),
        places=places,
        data_dir=data_dir_of(source),
    )
