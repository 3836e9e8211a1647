"""`tidelog job NAME`: runs a job over whole folders on Spark, on this machine or, with spark-submit, on a cluster.

A job is a module of this package with an attribute `command`, imported when it is called or its help is shown. No job
imports PySpark before it runs, so that help is fast. The work itself is a function of `tidelog.spark.jobs`.

| module | owns |
|---|---|
| running | the options of all jobs; runs a job and prints its result |
| submit | the program for spark-submit |
| the others | one job each |
"""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.lazy_group import Entry, LazyGroup

JOBS = {
    "verify": Entry(f"{__name__}.verify", "Check that every index and time map is correct and complete."),
    "build": Entry(f"{__name__}.build", "Build the indexes and time maps that are missing."),
    "rebuild": Entry(f"{__name__}.rebuild", "Rebuild every index and time map from the logs."),
    "migrate": Entry(f"{__name__}.migrate", "Rewrite a folder with old message formats in format v2."),
    "lookup": Entry(f"{__name__}.lookup", "Find the offsets for millions of times."),
    "latency": Entry(f"{__name__}.latency", "Show how long records were in transit, by minute."),
    "lag": Entry(f"{__name__}.lag", "Show how far behind all groups are, in time."),
    "retention": Entry(f"{__name__}.retention", "Show when segments are deleted, and which records keep them."),
    "replay": Entry(f"{__name__}.replay", "Copy a time window into another topic or cluster."),
    "bootstrap": Entry(f"{__name__}.bootstrap", "Cut topics into a history, and a stream that continues it."),
    "mirror": Entry(f"{__name__}.mirror", "Copy topics to another cluster, and keep them up to date."),
    "backup": Entry(f"{__name__}.backup", "Take a point of a cluster's backup."),
    "restore": Entry(f"{__name__}.restore", "Restore a backup into a cluster."),
    "verify-backup": Entry(f"{__name__}.verify_backup", "Check that a backup is complete and undamaged."),
    "failover": Entry(f"{__name__}.failover", "Find where a group continues in a mirror."),
}
"""The jobs in the order of `tidelog job --help`."""

SUBMIT_SCRIPT = Path(__file__).with_name("submit") / "tidelog_job.py"


class JobGroup(LazyGroup):
    """The group `tidelog job`."""

    entries = JOBS


def _show_submit_script(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(SUBMIT_SCRIPT)
        ctx.exit()


@click.group("job", cls=JobGroup)
@click.option(
    "--submit-script",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_submit_script,
    help="Print the path of the program for spark-submit, which takes the same arguments.",
)
def command() -> None:
    """Work on whole folders and backups on Spark: on all processors of this machine, or on a cluster.

    To run a job on a cluster: `spark-submit --master URL $(tidelog job --submit-script) NAME ...`. Folders must have the same
    path on each machine.
    """
