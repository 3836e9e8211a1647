"""Groups of commands whose modules are imported when they are called, so that listing them imports none."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar, NamedTuple

import click

from tidelog.near_names import did_you_mean


class Entry(NamedTuple):
    """One command of a group."""

    module: str
    """The module's name; the module has an attribute `command`."""
    line: str
    """The command's line in the group's help."""


class LazyGroup(click.Group):
    """A group of the commands `entries`, which its help lists in the same order."""

    entries: ClassVar[dict[str, Entry]]
    aliases: ClassVar[dict[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(self.aliases.get(cmd_name, cmd_name))
        if entry is None:
            return None
        command: click.Command = import_module(entry.module).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}{did_you_mean(name, self.entries, most=3)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.line) for name, entry in self.entries.items()])
