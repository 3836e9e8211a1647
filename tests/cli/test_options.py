"""What the commands share: times and what they resolved to, partitions, formats."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from tidelog.cli import app
from tidelog.cli.options import (
    Moment,
    TimeType,
    echo_moment,
    isolation_option,
    message_format_option,
    partition_option,
    wanted_partitions,
)
from tidelog.clock import Clock, ManualClock

JULY_10 = 1_373_414_400_000
DAY = 86_400_000


class TickingClock:
    """A clock that moves with every look at it."""

    def __init__(self) -> None:
        self.time_ms = JULY_10

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms


@click.command(cls=click.Command)
@click.option("--at", type=TimeType("earliest", "latest", "max"))
@click.option("--from", "start", type=TimeType())
@partition_option
@isolation_option
@message_format_option
def probe(
    at: Moment | str | None, start: Moment | None, partitions: tuple[int, ...], isolation: str, message_format: int | None
) -> None:
    for value in (at, start):
        if isinstance(value, Moment):
            echo_moment(value)
    click.echo(repr((at, start and start.time_ms, wanted_partitions(partitions), isolation, message_format)))


def try_out(*args: str, clock: Clock | None = None) -> Result:
    group = app.Application("tidelog")
    group.get_command = lambda ctx, name: probe  # type: ignore[method-assign]
    return CliRunner().invoke(group, ["probe", *args], obj=clock or ManualClock(JULY_10))


@pytest.mark.parametrize(
    ("args", "time_ms"),
    [
        (["--from", "2013-07-10"], JULY_10),
        (["--from", "-3d"], JULY_10 - 3 * DAY),
        (["--from=-3d"], JULY_10 - 3 * DAY),
        (["--from", "-1h30m"], JULY_10 - 5_400_000),
        (["--from", "now"], JULY_10),
        (["--from", "1373414400000"], JULY_10),
    ],
)
def test_times(args: list[str], time_ms: int) -> None:
    result = try_out(*args)
    assert result.exit_code == 0, result.output
    assert f"(None, {time_ms}, None, 'read_uncommitted', None)" in result.stdout


def test_what_a_time_resolved_to_is_echoed() -> None:
    assert try_out("--at", "2013-07-10").stderr == "2013-07-10 = 1373414400000 ms, 2013-07-10T00:00:00.000Z\n"
    assert try_out("--at", "-1d").stderr == "-1d = 1373328000000 ms, 2013-07-09T00:00:00.000Z\n"
    assert try_out("--at", "latest").stderr == ""


def test_seconds_for_milliseconds_are_pointed_out() -> None:
    stderr = try_out("--at", "1373414400").stderr
    assert stderr.splitlines() == [
        "1373414400 = 1373414400 ms, 1970-01-16T21:30:14.400Z",
        "note: digits alone are milliseconds; 1373414400 seconds would be 1373414400000",
    ]
    assert "note" not in try_out("--at", "0").stderr


def test_words() -> None:
    for word in ("earliest", "latest", "max", "LATEST"):
        assert f"('{word.lower()}', " in try_out("--at", word).stdout
    result = try_out("--from", "latest")
    assert result.exit_code == 2


@pytest.mark.parametrize("text", ["-5", "-1", "1969-01-01", "2013-02-30", "tomorrow", "", "9" * 30])
def test_no_times(text: str) -> None:
    result = try_out("--at", text)
    assert result.exit_code == 2
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("tidelog: invalid value for '--at': ")
    assert "(or earliest, latest, max)" in first
    assert second == "Try 'tidelog probe --help'."


def test_all_times_of_a_run_have_the_same_now() -> None:
    result = try_out("--at", "now", "--from", "-1d", clock=TickingClock())
    assert f"now = {JULY_10 + 1} ms" in result.stderr
    assert f"-1d = {JULY_10 + 1 - DAY} ms" in result.stderr


def test_partitions_isolation_format() -> None:
    result = try_out("--partition", "7", "-p", "2", "-p", "7", "--isolation", "read_committed", "--message-format", "v0")
    assert "(None, None, [2, 7], 'read_committed', 0)" in result.stdout
    for args in (["-p", "-1"], ["-p", "x"], ["-p", str(2**31)], ["--isolation", "dirty"], ["--message-format", "v3"]):
        assert try_out(*args).exit_code == 2


def test_the_machines_clock_is_the_default() -> None:
    group = app.Application("tidelog")
    group.get_command = lambda ctx, name: probe  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["probe", "--at", "now"])
    assert result.exit_code == 0
    assert "now = 1" in result.stderr
