"""`tidelog job failover HOST:PORT --group G`: where a group continues in a mirror, and how much it will read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.client_options import client_options, config_option, reached, reached_by
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import check_brokers, duration_ms
from tidelog.cli.printing import notices
from tidelog.cli.time_options import Moment, TimeType, echo_moment, time_zone_option

if TYPE_CHECKING:
    from tidelog.copying.failover import By
    from tidelog.spark.jobs.result import JobResult


@click.command("failover")
@click.argument("target", metavar="HOST:PORT", callback=reached)
@client_options
@click.option("--group", required=True, metavar="GROUP", help="The group to move.")
@click.option("--map", "map_dir", metavar="DIR", type=LocalPath(), help="The mirror's folder.")
@config_option("source")
@click.option(
    "--source",
    callback=reached_by("source"),
    metavar="DIR|HOST:PORT",
    help="The source, if it can still be read. [default: its last state in the mirror]",
)
@click.option(
    "--max-latency",
    metavar="TIME",
    help="The longest time from a record's timestamp to its append in the source, including clock skew, e.g. 5m.",
)
@time_zone_option
@click.option(
    "--read-until", type=TimeType(), help="The time of the last record that the group has read, if no offsets are known."
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic of the source; may be repeated.")
@click.option("--by", type=click.Choice(["map", "time"]), help="Which position to use. [default: map if there is one]")
@click.option("--prefix", default="", metavar="TEXT", help="Without --map: the prefix of topic names in the mirror.")
@click.option("--apply", "is_applied", is_flag=True, help="Commit the positions. Without this option, nothing is changed.")
@job_options
def command(
    target: str,
    group: str,
    map_dir: str | None,
    source: str | None,
    max_latency: str | None,
    read_until: Moment | None,
    topics: tuple[str, ...],
    by: By | None,
    prefix: str,
    is_applied: bool,
    options: JobOptions,
) -> None:
    """Find where GROUP continues in the mirror after the source has failed, and how many records it will read twice.

    The position comes from the offset map, and from a time: that of the last record that GROUP has read, minus the longest
    latency.
    """
    check_brokers(target, "failover needs HOST:PORT of the mirror.")
    echo_moment(read_until)
    max_latency_ms = None if max_latency is None else duration_ms("--max-latency", max_latency)

    from tidelog.copying.failover import FailoverOptions
    from tidelog.spark.jobs.failover import failover

    wanted = FailoverOptions(
        group=group,
        map_dir=map_dir,
        source=source,
        max_latency_ms=max_latency_ms,
        read_until_ms=None if read_until is None else read_until.time_ms,
        topics=topics,
        by=by,
        prefix=prefix,
    )

    def report(result: JobResult) -> None:
        count = sum(row[result.summary.columns.index("position")] is not None for row in result.summary.rows)
        notices.print_line(
            f"{group}: {f'offsets set: {count}' if is_applied else 'nothing was changed; to set the offsets, add --apply'}"
        )

    run_job(
        options, "failover", lambda spark, _: failover(spark, target, wanted, apply=is_applied), places=[target], report=report
    )
