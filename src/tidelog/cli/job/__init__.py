"""`tidelog job NAME`: work on whole folders, done by Spark: on this machine as it is, on a cluster with spark-submit.

A job is a module of this package with an attribute `command`, imported when it is called or its help is asked for. None of them
imports PySpark before it runs, so that help costs no JVM. The work itself is a function of `tidelog.spark.jobs`.

| module | owns |
|---|---|
| running | the options of all jobs, and how a job is run and answers |
| submit | the program that spark-submit is given |
| the others | a job each |
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

JOBS = {
    name: f"{__name__}.{name}"
    for name in (
        *("verify", "build", "rebuild", "migrate", "lookup", "latency", "lag", "retention"),
        *("replay", "bootstrap", "mirror", "failover"),
    )
}
"""Job → module, in the order of `tidelog job --help`."""

SUBMIT_SCRIPT = Path(__file__).with_name("submit") / "tidelog_job.py"


class JobGroup(click.Group):
    """The group `tidelog job`; its commands are imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, module in JOBS.items() if find_spec(module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(JOBS[cmd_name]).command
        return command


def _show_submit_script(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(SUBMIT_SCRIPT)
        ctx.exit()


@click.group("job", cls=JobGroup, short_help="Work on whole folders, done by Spark.")
@click.option(
    "--submit-script",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_submit_script,
    help="Print the path of the program for spark-submit, which takes the same arguments.",
)
def command() -> None:
    """Work on whole folders and backups, done by Spark: on all processors of this machine, or on a cluster.

    On a cluster it is `spark-submit --master URL $(tidelog job --submit-script) NAME ...`; folders must have the same path on
    each machine.
    """
