"""Groups of commands whose modules are imported when they are called, so that listing them imports none."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar, NamedTuple

import click


class Entry(NamedTuple):
    """One command of a group."""

    module: str
    """Has an attribute `command`."""
    line: str
    """Its line in the group's help."""


class LazyGroup(click.Group):
    """A group whose commands are `entries`, in the order of its help."""

    entries: ClassVar[dict[str, Entry]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = import_module(entry.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.line) for name, entry in self.entries.items()])
