"""`tidelog job mirror SOURCE --target HOST:PORT --map DIR`: copies topics to another cluster and keeps them up to date."""

from __future__ import annotations

import re

import click

from tidelog.cli.client_options import config_option, reached_by
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import check_brokers, duration_ms, source_argument


@click.command("mirror")
@source_argument
@config_option("target")
@click.option("--target", callback=reached_by("target"), required=True, metavar="HOST:PORT", help="The cluster to copy to.")
@click.option("--map", "map_dir", required=True, metavar="DIR", type=LocalPath(), help="The folder of the offset maps.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated.")
@click.option("--pattern", metavar="REGEX", help="Only topics whose whole name matches this regular expression.")
@click.option("--prefix", default="", metavar="TEXT", help="Prefix of topic names in the target.")
@click.option("--follow", is_flag=True, help="Keep copying new records until the process is stopped.")
@click.option("--pause", default="1s", show_default=True, metavar="TIME", help="With --follow: how long to wait between polls.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Also copy this group's committed offsets, translated.")
@click.option("--all-groups", is_flag=True, help="Also copy the committed offsets of all groups, translated.")
@click.option(
    "--job-id", metavar="NAME", help="Name under which positions are stored. [default: mirror-<the source's cluster id>]"
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 2**15 - 1),
    metavar="N",
    help="Replication factor of topics created in the target.",
)
@click.option("--skip-lost", is_flag=True, help="Continue after records that retention deleted before they were copied.")
@job_options
def command(
    source: str,
    target: str,
    map_dir: str,
    topics: tuple[str, ...],
    pattern: str | None,
    prefix: str,
    follow: bool,
    pause: str,
    groups: tuple[str, ...],
    all_groups: bool,
    job_id: str | None,
    replication_factor: int | None,
    skip_lost: bool,
    options: JobOptions,
) -> None:
    """Copy the topics of a cluster, or of a data folder, to another cluster: whole batches, each record once.

    Topics that the target lacks are created with the source's settings. The maps have the target offset of each record, for a
    failover. The next run continues where the last one ended, even if it was killed.
    """
    check_brokers(target, "--target needs HOST:PORT: a mirror is kept in a cluster.")
    if topics and pattern is not None:
        raise click.UsageError("--topic and --pattern cannot be combined.")
    if groups and all_groups:
        raise click.UsageError("--group and --all-groups cannot be combined.")
    pause_ms = duration_ms("--pause", pause)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.UsageError(f"--pattern: not a regular expression: {error}") from None

    from tidelog.spark.jobs.mirror import MirrorOptions, mirror

    wanted = MirrorOptions(
        source=source,
        target=target,
        map_dir=map_dir,
        topics=topics or None,
        pattern=pattern,
        prefix=prefix,
        job_id=job_id,
        replication_factor=replication_factor,
        groups=None if all_groups else groups,
        skip_lost=skip_lost,
    )
    run_job(
        options,
        "mirror",
        lambda spark, progress: mirror(spark, wanted, follow=follow, pause_ms=pause_ms, progress=progress),
        places=[source, target],
    )
