"""What the commands share: times and what they resolved to, partitions, formats."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from tidelog.cli import app
from tidelog.cli.options import isolation_option, message_format_option, partition_option, wanted_partitions
from tidelog.cli.time_options import Moment, TimeType, echo_moment, time_range_options
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
        "note: digits alone are epoch milliseconds; for 1373414400 seconds, use 1373414400000",
    ]
    assert "note" not in try_out("--at", "0").stderr


def test_words() -> None:
    for word in ("earliest", "latest", "max", "LATEST"):
        assert f"('{word.lower()}', " in try_out("--at", word).stdout
    result = try_out("--from", "latest")
    assert result.exit_code == 2


@pytest.mark.parametrize("text", ["-5", "-1", "1969-01-01", "2013-02-30", "monday", "", "9" * 30])
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


@click.command(cls=click.Command)
@time_range_options("The start.", "The end.")
def ranged(start: Moment | None, end: Moment | None) -> None:
    for moment in (start, end):
        if moment is not None:
            echo_moment(moment)
            click.echo(f"{moment.time_ms} {moment.is_relative}")


def try_range(*args: str) -> Result:
    group = app.Application("tidelog")
    group.get_command = lambda ctx, name: ranged  # type: ignore[method-assign]
    return CliRunner().invoke(group, ["ranged", *args], obj=ManualClock(JULY_10))


@pytest.mark.parametrize("is_last", [False, True])
def test_an_end_may_be_relative_to_the_start(is_last: bool) -> None:
    start = ["--from", "2013-07-09T09"]
    result = try_range(*([] if is_last else start), "--to", "+15m", *(start if is_last else []))
    assert result.stdout.splitlines() == [f"{JULY_10 - 15 * 3_600_000} False", f"{JULY_10 - 15 * 3_600_000 + 900_000} False"]
    assert "+15m = 1373361300000 ms, 2013-07-09T09:15:00.000Z" in result.stderr


def test_what_depends_on_the_clock_is_known() -> None:
    assert "True" in try_range("--from", "yesterday").stdout
    assert "True" in try_range("--to", "09:00").stdout
    assert try_range("--from", "-1h", "--to", "+15m").stdout.count("True") == 2
    assert try_range("--from", "2013-07-09", "--to", "-15m").stdout.count("True") == 1


def test_a_range_is_in_order_and_complete() -> None:
    result = try_range("--to", "+15m")
    assert result.exit_code == 2
    assert "relative to the start of a range" in result.stderr
    result = try_range("--from", "now", "--to", "yesterday")
    assert result.exit_code == 2
    assert "the range ends at 2013-07-09T00:00:00.000Z, before its start 2013-07-10T00:00:00.000Z" in result.stderr
    assert "not a time: '+x'" in try_range("--from", "now", "--to", "+x").stderr


@pytest.mark.parametrize("is_last", [False, True])
def test_a_time_zone(is_last: bool) -> None:
    zone = ["--tz", "europe/berlin"]
    result = try_range(*([] if is_last else zone), "--from", "yesterday 09:00", *(zone if is_last else []))
    assert result.stderr == (
        "yesterday 09:00 = 1373353200000 ms, 2013-07-09T07:00:00.000Z, 2013-07-09T09:00:00.000+02:00 Europe/Berlin\n"
    )
    refusal = try_range("--tz", "Europe/Belin").stderr.splitlines()[0]
    assert refusal.startswith("tidelog: invalid value for '--tz': no such time zone: found 'Europe/Belin' (did you mean ")
    assert "Europe/Berlin" in refusal


def test_the_environment_names_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_TZ", "Asia/Tokyo")
    assert "2013-07-10T09:00:00.000+09:00 Asia/Tokyo" in try_range("--from", "today 09:00").stderr
    assert "+02:00 Europe/Berlin" in try_range("--from", "today 09:00", "--tz", "Europe/Berlin").stderr
    monkeypatch.setenv("TIDELOG_TZ", "nowhere")
    result = try_range("--from", "today 09:00")
    assert result.exit_code == 2
    assert "environment variable TIDELOG_TZ: no such time zone: found 'nowhere'" in result.stderr


def test_completion_knows_times_and_zones() -> None:
    context = click.Context(probe)
    at = next(param for param in probe.params if param.name == "at")
    assert [item.value for item in at.shell_complete(context, "yes")] == ["yesterday"]
    assert [item.value for item in at.shell_complete(context, "la")] == ["latest"]
    zone = next(param for param in ranged.params if param.name == "tz")
    assert [item.value for item in zone.shell_complete(context, "europe/berl")] == ["Europe/Berlin"]


def test_the_machines_clock_is_the_default() -> None:
    group = app.Application("tidelog")
    group.get_command = lambda ctx, name: probe  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["probe", "--at", "now"])
    assert result.exit_code == 0
    assert "now = 1" in result.stderr
