"""`tidelog backup SOURCE TARGET` takes a backup; `backup list`, `show`, `verify`, `expire` and `diff` work on
an existing backup.

| module | owns |
|---|---|
| take | takes one point, or points repeatedly |
| points | list, show, diff |
| verify, expire | the commands of the same name |
| reports | check-report, and the options of commands that write a report |
| target | the argument that names a backup |
| spans | spans of time in options |
"""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.lazy_group import Entry, LazyGroup
from tidelog.near_names import did_you_mean

TAKE = "take"

COMMANDS = {
    TAKE: Entry(f"{__name__}.take", "Take a backup: the same as backup SOURCE TARGET."),
    "list": Entry(f"{__name__}.list_", "List the points of a backup."),
    "show": Entry(f"{__name__}.show", "Show the topics and partitions of a point."),
    "verify": Entry(f"{__name__}.verify", "Check that a backup is complete and undamaged."),
    "expire": Entry(f"{__name__}.expire", "Remove old points, and objects that only they need."),
    "check-report": Entry(f"{__name__}.reports", "Check who signed a report."),
    "diff": Entry(f"{__name__}.diff", "Show what has changed between two points."),
}


class BackupGroup(LazyGroup):
    """The group `tidelog backup`. A first argument that is not one of its commands is the source of a backup."""

    entries = COMMANDS

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            near = did_you_mean(args[0], COMMANDS)
            if near and ":" not in args[0] and not Path(args[0]).exists():
                raise click.UsageError(f"no such command {args[0]!r}{near}, and no folder of this name.", ctx)
            args = [TAKE, *args]
        return super().resolve_command(ctx, args)


@click.group("backup", cls=BackupGroup, context_settings={"ignore_unknown_options": True})
def command() -> None:
    """Back up brokers or a data folder into a folder or a bucket: tidelog backup HOST:PORT|DIR TARGET.

    A backup is made of Kafka's own segment files. Every command that reads a data folder can also read a backup, at its newest
    point or at --point. docs/backup.md describes the format.
    """
