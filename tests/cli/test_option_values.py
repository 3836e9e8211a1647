"""An option without its value, of any command: the error names the option, what it expects, and the command's help."""

from __future__ import annotations

import click
import pytest

from tests.cli.conftest import run
from tests.cli.incomplete import commands
from tidelog.cli.app import cli


def command_named(name: str) -> click.Command:
    command: click.Command = cli
    for part in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), part)
        assert found is not None
        command = found
    return command


@pytest.mark.parametrize("name", [*commands(), "groups", "index", "job", ""])
def test_an_option_without_its_value(name: str) -> None:
    command = command_named(name)
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        for spelling in param.opts:
            expected = tuple(param.type.choices) if isinstance(param.type, click.Choice) else (param.metavar or "",)
            help_hint = f"Try '{' '.join(('tidelog', *name.split()))} --help'."
            if param.is_flag:
                ran = run(*name.split(), f"{spelling}=1")
                if spelling.startswith("--"):
                    assert ran.error == f"tidelog: option '{spelling}' does not take a value."
                    assert ran.stderr.splitlines()[-1] == help_hint
                continue
            for more in ((), ("--help",)):
                ran = run(*name.split(), spelling, *more)
                assert ran.exit_code == 2
                assert ran.stdout == ""
                assert ran.error.startswith(f"tidelog: option '{spelling}' requires an argument: ")
                assert ("found the option '--help', expected " in ran.error) == bool(more)
                assert all(text in ran.error.partition("expected ")[2] for text in expected), ran.error
                assert ran.stderr.splitlines()[-1] == help_hint


def test_a_value_may_begin_with_hyphens() -> None:
    assert "no such folder" in run("cat", "nowhere", "topic", "--grep=--json").error
    assert "no such folder" in run("cat", "nowhere", "topic", "--grep", "--other").error
    assert "no topic" not in run("cat", "nowhere", "topic", "--grep", "--", "--json").error
