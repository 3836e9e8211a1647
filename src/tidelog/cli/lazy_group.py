"""Command groups that import a command's module only when the command is called, not when commands are listed."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar, NamedTuple

import click

from tidelog.cli.option_values import CommandContext, refuse_options_as_values


class Entry(NamedTuple):
    """One command of a group."""

    module: str
    """The module's name; the module has an attribute `command`."""
    line: str
    """The command's line in the group's help."""


class NamedGroup(click.Group):
    """A group that suggests one of its commands for an unknown command, and whose errors name the command that was called."""

    context_class = CommandContext

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from tidelog.cli.option_names import no_such_command

            ctx.fail(no_such_command(name, self, ctx))
        resolved, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            command.context_class = CommandContext
            if not ctx.resilient_parsing:
                refuse_options_as_values(CommandContext(command, info_name=resolved, parent=ctx), rest)
        return resolved, command, rest


class LazyGroup(NamedGroup, click.Group):
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.line) for name, entry in self.entries.items()])
