"""Times as people write them: what is accepted, what it means, what is refused and how."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.times import MAX_TIME_MS, Time, doubtful_unit, format_local, format_time, is_after_start, is_time_of_day, parse_time

JULY_10 = 1_373_414_400_000
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOW = JULY_10 + 9 * HOUR
CLOCK = ManualClock(NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-07-10", JULY_10),
        ("2013-07-10T00:00", JULY_10),
        ("2013-07-10T09:30:15", JULY_10 + 9 * HOUR + 30 * MINUTE + 15_000),
        ("2013-07-10 09:30:15", JULY_10 + 9 * HOUR + 30 * MINUTE + 15_000),
        ("2013-07-10t09:30:15z", JULY_10 + 9 * HOUR + 30 * MINUTE + 15_000),
        ("2013-07-10T09:30:15.25", JULY_10 + 9 * HOUR + 30 * MINUTE + 15_250),
        ("2013-07-10T09:30:15,250", JULY_10 + 9 * HOUR + 30 * MINUTE + 15_250),
        ("2013-07-10T09:30:15.999999999Z", JULY_10 + 9 * HOUR + 30 * MINUTE + 15_999),
        ("2013-07-10T02:00+02:00", JULY_10),
        ("2013-07-10T02:00+0200", JULY_10),
        ("2013-07-10 02:00 +02", JULY_10),
        ("2013-07-09T18:30-05:30", JULY_10),
        ("  2013-07-10  ", JULY_10),
        ("1970-01-01", 0),
        ("0", 0),
        ("-0", 0),
        ("1373414400000", JULY_10),
        ("20130710", 20_130_710),
        (str(MAX_TIME_MS), MAX_TIME_MS),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("+10000-01-01", 253_402_300_800_000),
        ("2000-02-29", 951_782_400_000),
        ("now", NOW),
        ("NOW", NOW),
        ("-3d", NOW - 3 * DAY),
        ("-90m", NOW - 90 * MINUTE),
        ("-1h30m", NOW - 90 * MINUTE),
        ("-2w", NOW - 14 * DAY),
        ("-45s", NOW - 45_000),
        ("-1w2d3h4m5s", NOW - (9 * DAY + 3 * HOUR + 4 * MINUTE + 5_000)),
        ("-0s", NOW),
        ("now-3d", NOW - 3 * DAY),
        ("NOW - 15M", NOW - 15 * MINUTE),
        ("now+15m", NOW + 15 * MINUTE),
        ("15m ago", NOW - 15 * MINUTE),
        ("15 minutes ago", NOW - 15 * MINUTE),
        ("-2 Hours", NOW - 2 * HOUR),
        ("1 week 2days 3 hrs ago", NOW - (9 * DAY + 3 * HOUR)),
        ("now - 1h 30min 5 secs 250ms", NOW - 90 * MINUTE - 5_250),
        ("9am", NOW),
        ("9:00 AM", NOW),
        ("12am", JULY_10),
        ("today 12:30pm", NOW + 210 * MINUTE),
        ("2013-07-10 9am", NOW),
        ("yesterday 9", NOW - DAY),
        ("11am Europe/Berlin", NOW),
        ("noon", NOW + 3 * HOUR),
        ("Midnight", JULY_10),
        ("today noon", NOW + 3 * HOUR),
        ("yesterday midnight", JULY_10 - DAY),
        ("last tue noon", NOW - 21 * HOUR),
        ("2013-07-10 NOON", NOW + 3 * HOUR),
        ("noon Asia/Tokyo", NOW - 6 * HOUR),
        ("today noon +03:00", NOW),
        ("2013-07-10T09", NOW),
        ("2013-07-10 09Z", NOW),
        ("2013-07-10 9:15", NOW + 15 * MINUTE),
        ("09:00", NOW),
        ("9:00:00.250 Z", NOW + 250),
        ("today", JULY_10),
        ("Yesterday 09:00", NOW - DAY),
        ("tomorrow", JULY_10 + DAY),
        ("last wednesday", JULY_10 - 7 * DAY),
        ("last tue 09:00", NOW - DAY),
        ("last Thursday", JULY_10 - 6 * DAY),
        ("2013-07-10 11:00 Europe/Berlin", NOW),
        ("2013-07-10T11:00 europe/berlin", NOW),
        ("09:00 UTC", NOW),
        ("today America/New_York", JULY_10 + 4 * HOUR),
        ("yesterday 23:00 -01:00", JULY_10),
        ("2013-07-10 Europe/Berlin", JULY_10 - 2 * HOUR),
    ],
)
def test_texts(text: str, expected: int) -> None:
    assert parse_time(text, CLOCK) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "monday",
        "mon 09:00",
        "noon today",
        "noons",
        "todaynoon",
        "noon:30",
        "noon pm",
        "last week",
        "last m",
        "0am",
        "13:00pm",
        "9:60am",
        "2013-07-10 9",
        "an hour ago",
        "-1 fortnight",
        "todayT09:00",
        "yesterday 24:00",
        "today+02:00",
        "2013-07-10+02:00",
        "now Europe/Berlin",
        " ago",
        "3d",
        "+3d",
        "-3",
        "-3x",
        "-30m1h",
        "-1d-2h",
        "-1.5h",
        "now-",
        "now-1.5h",
        "2013-07",
        "2013-7-10",
        "2013-02-29",
        "1900-02-29",
        "2013-13-01",
        "2013-00-01",
        "2013-07-00",
        "2013-07-10T24:00",
        "2013-07-10T9",
        "2013-07-10T09:60",
        "2013-07-10T09:00:60",
        "2013-07-10T09:00+24:00",
        "2013-07-10T09:00+02:60",
        "2013-07-10T09:00 Europe/Pariss",
        "2013-07-10T09:00 ../../etc/passwd",
        "2013-07-10T09:00 /etc/localtime",
        "+10000-01-01 Europe/Paris",
        "2013-07-10  09:00",
        "2013-W28-3",
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:30+01:00",
        "-9999999w",
        str(MAX_TIME_MS + 1),
        "-1",
        "1e12",
        "1373414400000.5",
        "１３７３",
        "٢٠١٣-٠٧-١٠",
        "9" * 5000,
        "-" + "9" * 5000 + "d",
        "x" * 100_000,
        "2013-07-10\x00",
        "nan",
    ],
)
def test_what_is_no_time_is_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_time(text, CLOCK)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_refusal_says_what_is_accepted() -> None:
    with pytest.raises(InvalidArgumentError, match=r"not a time: 'soon'; accepted: 2013-07-10, .*now, .*-3d"):
        parse_time("soon", CLOCK)
    with pytest.raises(InvalidArgumentError, match=r"not a time: 'mon 9am'; .*: 'last mon 9am'"):
        parse_time("mon 9am", CLOCK)
    with pytest.raises(InvalidArgumentError, match=r"2013-02-30.*not in the calendar"):
        parse_time("2013-02-30", CLOCK)
    with pytest.raises(InvalidArgumentError, match="-5 is before 1970"):
        parse_time("-5", CLOCK)


def test_numbers_are_epoch_milliseconds() -> None:
    assert parse_time(JULY_10, CLOCK) == JULY_10
    assert parse_time(0, CLOCK) == 0
    for number in (-1, MAX_TIME_MS + 1, 10**5000, -(10**5000)):
        with pytest.raises(InvalidArgumentError):
            parse_time(number, CLOCK)


@pytest.mark.parametrize("value", [True, None, 1.5, b"now", [1]])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="not a time"):
        parse_time(value, CLOCK)  # type: ignore[arg-type]


def test_dates_and_datetimes() -> None:
    assert parse_time(date(2013, 7, 10), CLOCK) == JULY_10
    assert parse_time(datetime(2013, 7, 10), CLOCK) == JULY_10
    assert parse_time(datetime(2013, 7, 10, tzinfo=UTC), CLOCK) == JULY_10
    assert parse_time(datetime(2013, 7, 10, 2, tzinfo=timezone(timedelta(hours=2))), CLOCK) == JULY_10
    assert parse_time(datetime(2013, 7, 10, 0, 0, 0, 1999), CLOCK) == JULY_10 + 1
    with pytest.raises(InvalidArgumentError, match="before 1970"):
        parse_time(datetime(1969, 12, 31), CLOCK)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (JULY_10, "2013-07-10T00:00:00.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (MAX_TIME_MS, "+292278994-08-17T07:12:55.807Z"),
        (-(2**63), "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_format(time_ms: int, text: str) -> None:
    assert format_time(time_ms) == text


@given(st.integers(0, MAX_TIME_MS))
def test_a_formatted_time_parses_to_itself(time_ms: int) -> None:
    assert parse_time(format_time(time_ms), CLOCK) == time_ms


@given(st.datetimes(min_value=datetime(1970, 1, 1)))
def test_the_calendar_is_pythons(moment: datetime) -> None:
    expected = (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    assert parse_time(moment, CLOCK) == expected
    assert parse_time(moment.isoformat(), CLOCK) == expected
    assert format_time(expected) == moment.isoformat(timespec="milliseconds") + "Z"


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_an_argument_error(text: str) -> None:
    try:
        time_ms = parse_time(text, CLOCK)
    except InvalidArgumentError:
        return
    assert 0 <= time_ms <= MAX_TIME_MS


@pytest.mark.parametrize(
    ("number", "meant"),
    [
        (1_373_414_400, "as seconds it would be 2013-07-10T00:00:00.000Z, 1373414400000"),
        (1_373_414_400_000_000, "as microseconds it would be 2013-07-10T00:00:00.000Z, 1373414400000"),
        (1_373_414_400_000_000_000, "as nanoseconds it would be 2013-07-10T00:00:00.000Z, 1373414400000"),
        (1_373_414_400_000, None),
        (0, None),
        (99_999_999, None),
    ],
)
def test_a_number_of_another_unit_is_doubted(number: int, meant: str | None) -> None:
    doubt = doubtful_unit(number)
    assert doubt is None if meant is None else doubt is not None and doubt.endswith(meant)


# --- zones


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-07-10T11:00", NOW),
        ("2013-07-10T09:00Z", NOW),
        ("2013-07-10T11:00 Asia/Tokyo", NOW - 7 * HOUR),
        ("11:00", NOW),
        ("today", JULY_10 - 2 * HOUR),
        ("1373446800000", NOW),
        (date(2013, 7, 10), JULY_10 - 2 * HOUR),
        (datetime(2013, 7, 10, 11), NOW),
        (datetime(2013, 7, 10, 9, tzinfo=UTC), NOW),
        (NOW, NOW),
    ],
)
def test_a_zone_is_for_times_without_one(text: Time, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_time(text, CLOCK, zone="Europe/Berlin") == expected
    monkeypatch.setenv("TIDELOG_TZ", "Europe/Berlin")
    assert parse_time(text, CLOCK) == expected
    assert parse_time("11:00", CLOCK, zone="UTC") == NOW + 2 * HOUR


def test_today_is_the_day_of_the_zone() -> None:
    late = ManualClock(JULY_10 + 23 * HOUR)
    assert parse_time("today", late) == JULY_10
    assert parse_time("today", late, zone="Europe/Berlin") == JULY_10 + 22 * HOUR
    assert parse_time("today 01:00 +02:00", late) == JULY_10 + 23 * HOUR
    assert parse_time("last wednesday", late, zone="Europe/Berlin") == JULY_10 - 2 * HOUR


@pytest.mark.parametrize("name", ["Europe/Belin", "Mars", "..", "x" * 90])
def test_an_unknown_zone_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="no such time zone"):
        parse_time("09:00", CLOCK, zone=name)
    monkeypatch.setenv("TIDELOG_TZ", name)
    with pytest.raises(InvalidArgumentError, match="environment variable TIDELOG_TZ: no such time zone"):
        parse_time("09:00", CLOCK)
    assert parse_time("now", CLOCK) == NOW


def test_similar_zones_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"found 'Europe/Belin' \(did you mean .*Europe/Berlin"):
        parse_time("09:00 Europe/Belin", CLOCK)


def test_local_times_that_clocks_skip_or_repeat() -> None:
    with pytest.raises(InvalidArgumentError, match="does not exist in Europe/Berlin"):
        parse_time("2026-03-29T02:30", CLOCK, zone="Europe/Berlin")
    with pytest.raises(
        InvalidArgumentError, match=r"occurs twice in Europe/Berlin.* 2026-10-25T02:30\+02:00 or 2026-10-25T02:30\+01:00"
    ):
        parse_time("2026-10-25T02:30", CLOCK, zone="Europe/Berlin")
    # A day begins at one instant, also where its midnight is skipped or comes twice.
    for midnight in ("", " midnight"):
        assert format_time(parse_time(f"2018-11-04{midnight}", CLOCK, zone="America/Sao_Paulo")) == "2018-11-04T03:00:00.000Z"
        assert format_time(parse_time(f"2026-11-01{midnight}", CLOCK, zone="America/Havana")) == "2026-11-01T04:00:00.000Z"


@given(
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2100, 1, 1)),
    st.sampled_from(["Europe/Berlin", "Asia/Kolkata"]),
)
def test_a_local_time_is_pythons(moment: datetime, zone: str) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    try:
        time_ms = parse_time(moment.isoformat(), CLOCK, zone=zone)
    except InvalidArgumentError:
        assert moment.replace(tzinfo=ZoneInfo(zone)).utcoffset() != moment.replace(tzinfo=ZoneInfo(zone), fold=1).utcoffset()
        return
    assert datetime.fromtimestamp(time_ms / 1000, ZoneInfo(zone)).replace(tzinfo=None) == moment


@given(
    st.sampled_from(["today", "yesterday", "last monday", "09:00", "2013-07-10 09:30", "last sun 9:00"]),
    st.integers(0, 4 * 10**12),
)
def test_words_are_in_the_past_and_within_a_week(text: str, now_ms: int) -> None:
    now_ms += 8 * DAY
    time_ms = parse_time(text, ManualClock(now_ms))
    if not text.startswith(("0", "2")):
        assert now_ms - 8 * DAY < time_ms <= now_ms
    assert parse_time(text, ManualClock(now_ms)) == time_ms


# --- relative to a start


def test_a_span_after_the_start() -> None:
    assert parse_time("+15m", CLOCK, start_ms=JULY_10) == JULY_10 + 15 * MINUTE
    assert parse_time(" +1h30m ", CLOCK, start_ms=JULY_10) == JULY_10 + 90 * MINUTE
    assert parse_time("-15m", CLOCK, start_ms=JULY_10) == NOW - 15 * MINUTE
    with pytest.raises(InvalidArgumentError, match="relative to the start of a range"):
        parse_time("+15m", CLOCK)
    assert is_after_start("+15m")
    assert not any(map(is_after_start, ("-15m", "now+15m", "+10000-01-01", "+", "", "15m ago")))
    assert all(map(is_time_of_day, ("09:15", " 9am ", "09:15 Europe/Berlin", "noon", "midnight")))
    assert not any(map(is_time_of_day, ("today 09:15", "2013-07-10T09:15", "+15m", "now", "1")))


def test_a_local_form_is_shown_where_it_differs() -> None:
    assert format_local(NOW, "Europe/Berlin") == "2013-07-10T11:00:00.000+02:00 Europe/Berlin"
    assert format_local(NOW, "UTC") is None
    assert format_local(MAX_TIME_MS, "Europe/Berlin") is None
