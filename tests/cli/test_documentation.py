"""docs/cli.md: every command and option is in it, and its examples are what the commands say."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from tests.cli.conftest import ROOT, run
from tidelog.cli.app import COMMANDS, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, EXIT_TERMINATED, cli
from tidelog.cli.commands.dump import KINDS

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"^```console\n\$ (.+?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def command_named(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def parameters(name: str) -> list[click.Parameter]:
    """What a command takes; of a group, also what all its commands take. Jobs, imported one by one, have their own page."""
    command = command_named(name)
    commands = command.commands.values() if isinstance(command, click.Group) else []
    return [parameter for one in (command, *commands) for parameter in one.params]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    section = SECTIONS[name]
    assert f"    tidelog {name} " in section
    command = command_named(name)
    for within in command.commands if isinstance(command, click.Group) else ():
        assert f"    tidelog {name} {within} " in section
    for parameter in parameters(name):
        if isinstance(parameter, click.Argument):
            assert (parameter.metavar or "").strip("[]") in section
            continue
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert re.search(rf"`{re.escape(option)}[ `]", section), f"{name} {option} is not in docs/cli.md"
        if isinstance(parameter.type, click.Choice):
            for choice in parameter.type.choices:
                assert choice in section, f"{name} {parameter.opts[0]} {choice} is not in docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_no_mark_of_the_source(name: str) -> None:
    command = command_named(name)
    within = command.commands.values() if isinstance(command, click.Group) else ()
    for one in (command, *within):
        assert not re.search(r"\\b\s|\x08|noqa", one.get_help(click.Context(one))), one.name


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_documented_that_is_not_there(name: str) -> None:
    known = {option for parameter in parameters(name) for option in (*parameter.opts, *parameter.secondary_opts)}
    documented = set(re.findall(r"`(--[a-z-]+)", SECTIONS[name]))
    assert documented <= known


def test_group_options_kinds_and_exit_codes() -> None:
    for parameter in cli.params:
        for option in parameter.opts:
            assert option in PAGE
    for ending, kind in KINDS:
        assert ending in SECTIONS["dump"]
        assert f"`{kind}`" in SECTIONS["dump"]
    for exit_code in (0, 1, 2, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, EXIT_TERMINATED):
        assert f"| {exit_code} |" in SECTIONS["Answers, notes, errors"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8
    assert {shlex.split(line)[1] for line, _ in EXAMPLES} >= {"find", "cat", "stat", "dump", "retention", "index"}


@pytest.mark.parametrize(("line", "shown"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_examples_are_what_the_commands_say(line: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program, *args = shlex.split(line)
    assert program == "tidelog"
    ran = run(*args)
    assert ran.exit_code == (1 if shown.startswith("tidelog: ") else 0), ran.stderr
    # How many bytes a search reads is no promise.
    pattern = re.escape(shown).replace(re.escape("; ... read"), r"; [0-9.]+ [KM]?i?B read")
    assert re.fullmatch(pattern, ran.stderr + ran.stdout), ran.stderr + ran.stdout
