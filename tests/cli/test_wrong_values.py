"""A wrong value of any option, of any command: exit code 2, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.conftest import run
from tests.cli.incomplete import commands
from tests.cli.test_option_values import command_named

WRONG = {
    "[-]DURATION": "soon",
    "[HOST:]PORT": "99999",
    "[TOPIC=]FORMAT": "nonsense",
    "CHAR": "two",
    "EXPRESSION": "",
    "FORMAT": "%z",
    "HOST": "",
    "HOST:PORT": "localhost:99999",
    "KEY=VALUE": "nothing",
    "N": "soon",
    "NAME=VALUE": "nothing",
    "N|-N|N:M": "soon",
    "N|auto": "soon",
    "OLD=NEW": "nothing",
    "REGEX": "(",
    "SIZE": "soon",
    "SPAN": "soon",
    "TIME": "soon",
    "TOPIC=N": "nothing",
    "TOPIC[:N,...]": "t:soon",
    "ZONE": "Nowhere/Else",
}
"""A value that is wrong whatever there is, by an option's placeholder."""

OPEN = {
    *("ADDRESS", "DIR", "DIR|HOST:PORT", "FILE", "KAFKA_DATA_DIR", "PATH", "PEM", "URL", "[ID=]FILE", "[TOPIC=]FILE"),
    *("COL", "GROUP", "ID", "KEY", "NAME", "NAME[=VALUE]", "N|TIME", "TEXT", "TOPIC"),
}
"""Placeholders of names and places: whether one exists is known only once something is opened."""

NEEDS = {
    "cat --every": ["--count"],
    "cat --max-lateness": ["--to", "now"],
    "backup take --every": ["--follow"],
    "serve --processes": ["--data", "nowhere"],
    "groups reset --topic": ["--by", "-1h"],
}
"""What an option is given with."""


def right(param: click.Parameter) -> str:
    """Return a value that an option accepts, without anything being there."""
    if isinstance(param.type, click.IntRange):
        return "1"
    if isinstance(param, click.Argument) or param.metavar is not None:
        shown = param.metavar or ""
        return "a:1" if "HOST:PORT" in shown else "30d" if shown == "TIME" else "nowhere"
    return "now"


def metavar(command: click.Command, param: click.Option) -> str:
    if param.metavar:
        return param.metavar
    return param.type.get_metavar(param, click.Context(command)) or "TOPIC"


@pytest.mark.parametrize("name", list(commands()))
def test_a_wrong_value_is_a_usage_error_before_anything_is_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = command_named(name)
    found = {}
    for param in command.params:
        if not isinstance(param, click.Option) or param.is_flag or isinstance(param.type, click.IntRange | click.FloatRange):
            continue
        shown = metavar(command, param)
        assert (shown in WRONG) + (shown in OPEN) == 1 or isinstance(param.type, click.Choice) or "TIME" in shown, (
            f"{name} {param.opts[0]} {shown}: is there a value that is wrong whatever there is?"
        )
        if shown in OPEN:
            continue
        wrong = WRONG.get(shown, "soon")
        needed = [
            text
            for one in command.params
            if isinstance(one, click.Option) and one.required and one is not param
            for text in (one.opts[0], right(one))
        ]
        arguments = [right(one) for one in command.params if isinstance(one, click.Argument)]
        more = NEEDS.get(f"{name} {param.opts[0]}", [])
        ran = run(*name.split(), *arguments, *needed, *more, param.opts[0], wrong)
        if ran.exit_code != 2 or param.opts[0] not in ran.error:
            found[param.opts[0]] = (ran.exit_code, ran.error)
    assert found == {}
    assert list(tmp_path.iterdir()) == []


def test_an_address_is_checked_before_anything_is_opened() -> None:
    for arguments in (["ls", "localhost:99999"], ["cat", "a:1,localhost:0", "t"], ["verify", "localhost:99999"]):
        ran = run(*arguments)
        assert (ran.exit_code, "the port is out of range" in ran.error) == (2, True), ran.error


@pytest.mark.parametrize("command", [["ls"], ["cat", "t"], ["stat"]])
def test_a_host_without_a_port_is_no_folder(command: list[str]) -> None:
    name, *topics = command
    ran = run(name, "localhost", *topics)
    assert (ran.exit_code, ran.error) == (1, "tidelog: no such folder; for brokers, give HOST:PORT (localhost)")
    assert "HOST:PORT" not in run(name, "./somewhere/else", *topics).error


def test_a_backup_is_opened_after_all_arguments_are_checked() -> None:
    for options in (["--keep", "soon"], ["--keep", "5"], ["--keep", "5d", "--grace", "soon"], ["--keep", "5d", "--nope"]):
        assert run("backup", "expire", "nowhere", *options).exit_code == 2
    assert "no backup here" in run("backup", "expire", "nowhere", "--keep", "5d").error
