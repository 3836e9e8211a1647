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


@pytest.mark.parametrize("name", list(commands()))
def test_a_number_that_is_too_large(name: str) -> None:
    """No number that an option takes is larger than an int64, which Arrow and Kafka use."""
    for param in command_named(name).params:
        if isinstance(param.type, click.IntRange):
            arguments = ["x" for one in command_named(name).params if isinstance(one, click.Argument) and one.required]
            ran = run(*name.split(), *arguments, param.opts[0], 10**30)
            assert ran.exit_code == 2
            assert ran.error.startswith(f"tidelog: invalid value for '{param.opts[0]}': {10**30} is not in the range "), ran.error


@pytest.mark.parametrize(
    "args",
    [
        ["cat", "d", "t", "--count", "--every", "soon"],
        ["cat", "d", "t", "--to", "now", "--max-lateness", "soon"],
        ["groups", "lag", "d", "--max-lag", "soon"],
        ["groups", "lag", "d", "--window", "soon"],
        ["groups", "describe", "d", "g", "--window", "soon"],
        ["groups", "reset", "a:1", "g", "--by", "soon"],
        ["retention", "d", "--retention", "soon"],
        ["backup", "d", "b", "--follow", "--every", "soon"],
        ["job", "lag", "d", "--max-lag", "soon"],
        ["job", "mirror", "a:1", "--target", "a:2", "--map", "m", "--pause", "soon"],
        ["cat", "d", "t", "--offset", "soon"],
    ],
)
def test_a_wrong_duration_or_offset_names_its_option(args: list[str]) -> None:
    ran = run(*args)
    assert ran.exit_code == 2
    assert args[-2] in ran.error and "'soon'" in ran.error
    assert ran.stderr.splitlines()[-1].endswith("--help'.")


def test_an_error_is_one_line() -> None:
    assert run("completion").error == "tidelog: missing argument 'SHELL'. Choose from: bash, zsh, fish"
