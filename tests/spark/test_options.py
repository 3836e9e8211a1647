"""The options and their checks, without Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.model import EARLIEST, LATEST
from tidelog.spark.options import COLUMNS, IGNORED, OPTIONS, ReadOptions, parse_options

NOW_MS = 1_373_500_800_000  # 2013-07-11


def parse(**options: Any) -> ReadOptions:
    given = {"path": "/data", "subscribe": "orders"} | {key.replace("__", "."): str(value) for key, value in options.items()}
    return parse_options({key: value for key, value in given.items() if value != "None"}, ManualClock(NOW_MS))


def refused(**options: Any) -> str:
    with pytest.raises(InvalidArgumentError) as error:
        parse(**options)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_what_is_not_said_has_the_connectors_defaults() -> None:
    options = parse()
    assert (options.topics, options.pattern, options.assigned) == (("orders",), None, None)
    assert options.starting.of(("orders", 0)) == EARLIEST and not options.starting.by_time
    assert options.ending.of(("orders", 0)) == LATEST and not options.ending.by_time
    assert options.error_without_match and options.fail_on_data_loss
    assert (options.start_ms, options.end_ms, options.min_partitions) == (None, None, None)
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.isolation == "read_uncommitted"
    assert options.notices == ()


def test_options_travel_to_workers() -> None:
    options = parse(startingOffsets='{"orders":{"0":5}}', includeHeaders="true")
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_are_case_insensitive() -> None:
    given = {"PATH": "/data", "SubScribe": "orders", "STARTTIME": "2013-07-10", "minpartitions": "3"}
    options = parse_options(given, ManualClock(NOW_MS))
    assert (options.topics, options.start_ms, options.min_partitions) == (("orders",), NOW_MS - 86_400_000, 3)


def test_an_unknown_option_is_refused_with_the_list_of_known_ones() -> None:
    text = refused(startingOffset="earliest", colums="key")
    assert "options colums (did you mean columns?), startingoffset (did you mean startingOffsets?);" in text
    assert all(name in text for name in OPTIONS)


def test_what_speaks_of_a_broker_is_ignored_and_said_once() -> None:
    names = {name.replace(".", "__"): "1" for name in IGNORED}
    options = parse(kafka__bootstrap__servers="localhost:9092", kafka__max__poll__records="5", **names)
    assert len(options.notices) == 1
    assert all(name in options.notices[0] for name in (*IGNORED, "kafka.bootstrap.servers", "kafka.max.poll.records"))


def test_the_path_is_a_folder() -> None:
    assert parse(path="data").source == str(Path.cwd() / "data")
    assert parse(path="file:///data/a%20b").source == "/data/a b"
    assert parse(path="file:/data").source == "/data"
    assert "no source is given" in refused(path="None")
    assert "no source is given" in refused(path="  ")
    for elsewhere in ("ftp://bucket/kafka", "s3a:/bucket/kafka", "file://other/kafka"):
        assert elsewhere in refused(path=elsewhere)
    assert Path(parse(path="~odd:name").source).is_absolute()


def test_exactly_one_subscription() -> None:
    assert "none of them" in refused(subscribe="None")
    assert "subscribe and assign" in refused(assign='{"orders":[0]}')
    assert "subscribe and subscribePattern" in refused(subscribePattern=".*")


def test_subscribe_takes_topics_separated_by_commas() -> None:
    assert parse(subscribe=" orders , returns,,orders ").topics == ("orders", "returns")
    assert "option subscribe is empty" in refused(subscribe=" , ")
    assert "not a topic name" in refused(subscribe="../etc")
    assert "not a topic name" in refused(subscribe="..")


def test_assign_takes_partitions_as_json() -> None:
    assert parse(subscribe=None, assign='{"b":[2,0,2],"a":[1]}').assigned == (("b", 2), ("b", 0), ("a", 1))
    for wrong in (
        "orders",
        "[0]",
        '{"orders":0}',
        '{"orders":["0"]}',
        '{"orders":[-1]}',
        '{"orders":[true]}',
        '{"orders":[1.5]}',
    ):
        assert "option assign" in refused(subscribe=None, assign=wrong)
    assert "names no partition" in refused(subscribe=None, assign='{"orders":[]}')


def test_a_pattern_is_checked_at_once() -> None:
    assert parse(subscribe=None, subscribePattern=" ord.* ").pattern == "ord.*"
    assert "empty" in refused(subscribe=None, subscribePattern=" ")
    assert "invalid pattern" in refused(subscribe=None, subscribePattern="(")


def test_offsets_are_earliest_latest_or_json() -> None:
    assert parse(startingOffsets=" Earliest ").starting.everywhere == EARLIEST
    assert parse(endingOffsets="LATEST").ending.everywhere == LATEST
    offsets = parse(startingOffsets='{"orders":{"0":23,"1":-2}}').starting
    assert (offsets.of(("orders", 0)), offsets.of(("orders", 1)), offsets.by_time) == (23, EARLIEST, False)
    assert parse(endingOffsets='{"orders":{"0":23,"1":-1}}').ending.of(("orders", 1)) == LATEST
    for wrong in (
        "",
        "beginning",
        "17",
        '{"orders":5}',
        '{"orders":{"x":5}}',
        '{"orders":{"0":"5"}}',
        '{"orders":{"0":null}}',
        "{",
    ):
        assert "option startingOffsets" in refused(startingOffsets=wrong)
        assert "option endingOffsets" in refused(endingOffsets=wrong)
    assert "is not an offset" in refused(startingOffsets='{"orders":{"0":-3}}')


def test_a_batch_neither_starts_at_the_latest_nor_ends_at_the_earliest_offset() -> None:
    assert "startingOffsets cannot be latest" in refused(startingOffsets="latest")
    assert "startingOffsets cannot be latest for orders-1" in refused(startingOffsets='{"orders":{"0":1,"1":-1}}')
    assert "endingOffsets cannot be earliest" in refused(endingOffsets="earliest")
    assert "endingOffsets cannot be earliest for orders-0" in refused(endingOffsets='{"orders":{"0":-2}}')


def test_timestamps_are_epoch_milliseconds() -> None:
    options = parse(startingTimestamp=" 1373414400000 ", endingTimestamp="1373500800000")
    assert (options.starting.everywhere, options.starting.by_time) == (1_373_414_400_000, True)
    assert (options.ending.everywhere, options.ending.by_time) == (1_373_500_800_000, True)
    for wrong in ("2013-07-10", "-1", "", "1e9", str(2**63), "9" * 5000):
        assert "option startingTimestamp" in refused(startingTimestamp=wrong)


def test_timestamps_per_partition() -> None:
    options = parse(startingOffsetsByTimestamp='{"orders":{"0":5,"1":6}}', endingOffsetsByTimestamp='{"orders":{"0":7,"1":6}}')
    assert (options.starting.of(("orders", 1)), options.starting.by_time) == (6, True)
    assert "must not be negative" in refused(startingOffsetsByTimestamp='{"orders":{"0":-1}}')
    assert "option endingOffsetsByTimestamp" in refused(endingOffsetsByTimestamp="5")


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "6", "endingTimestamp": "5"},
        {"startingTimestamp": "6", "endingOffsetsByTimestamp": '{"orders":{"0":7,"1":5}}'},
        {"startingOffsetsByTimestamp": '{"orders":{"0":5,"1":6}}', "endingTimestamp": "5"},
        {"startingOffsetsByTimestamp": '{"orders":{"0":6}}', "endingOffsetsByTimestamp": '{"orders":{"0":5}}'},
        {"startingOffsets": '{"orders":{"0":6}}', "endingOffsets": '{"orders":{"0":5}}'},
    ],
)
def test_a_start_behind_its_end_is_an_error_in_each_form(options: dict[str, str]) -> None:
    assert "6 lies after" in refused(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"startTime": "1373414400"},
        {"endTime": "1373414400"},
        {"startingTimestamp": "1373414400"},
        {"endingOffsetsByTimestamp": '{"orders":{"0":1373414400}}'},
    ],
)
def test_seconds_in_place_of_milliseconds_are_said(options: dict[str, str]) -> None:
    (notice,) = parse(**options).notices
    assert notice.startswith(f"option {next(iter(options))}: 1373414400 is taken as milliseconds")
    assert not parse(startTime="1971-01-01", startingTimestamp="1373414400000").notices


def test_precedence_is_the_connectors() -> None:
    by_offset = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":2}}'}
    by_partition = {"startingOffsetsByTimestamp": '{"orders":{"0":3}}', "endingOffsetsByTimestamp": '{"orders":{"0":4}}'}
    everywhere = {"startingTimestamp": "5", "endingTimestamp": "6"}
    options = parse(**by_offset, **by_partition, **everywhere)
    assert (options.starting.option, options.ending.option) == ("startingTimestamp", "endingTimestamp")
    options = parse(**by_offset, **by_partition)
    assert (options.starting.option, options.ending.option) == ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp")


def test_both_ends_name_the_same_partitions_in_order() -> None:
    text = refused(startingOffsets='{"orders":{"0":1}}', endingOffsets='{"orders":{"0":2,"1":2}}')
    assert "only one of them names orders-1" in text
    assert "lies after" in refused(startingOffsets='{"orders":{"0":3}}', endingOffsets='{"orders":{"0":2}}')
    assert "lies after" in refused(startingOffsetsByTimestamp='{"orders":{"0":3}}', endingOffsetsByTimestamp='{"orders":{"0":2}}')
    # A special value is no number to compare, and an offset and a time are not alike.
    parse(startingOffsets='{"orders":{"0":3}}', endingOffsets='{"orders":{"0":-1}}')
    parse(startingOffsets='{"orders":{"0":3}}', endingOffsetsByTimestamp='{"orders":{"1":2}}')


def test_the_strategy_without_a_match() -> None:
    assert parse(startingOffsetsByTimestampStrategy="ERROR").error_without_match
    assert not parse(startingOffsetsByTimestampStrategy="latest").error_without_match
    assert "error or latest" in refused(startingOffsetsByTimestampStrategy="earliest")


def test_an_exact_range_takes_the_times_of_the_command_line() -> None:
    options = parse(startTime="-1d", endTime="now")
    assert (options.start_ms, options.end_ms) == (NOW_MS - 86_400_000, NOW_MS)
    options = parse(startTime="2013-07-10T02:00:00+02:00", endTime=str(NOW_MS))
    assert (options.start_ms, options.end_ms) == (NOW_MS - 86_400_000, NOW_MS)
    assert parse(startTime="now", endTime="now").start_ms == NOW_MS
    assert "option startTime: not a time" in refused(startTime="monday")
    assert parse(startTime="yesterday", endTime="+12h").end_ms == parse(endTime="yesterday 12:00").end_ms
    assert parse(startTime="12:00", timeZone="Asia/Tokyo").start_ms == parse(startTime="03:00").start_ms
    assert "option timeZone: no such time zone: found 'Asia/Tokio'" in refused(timeZone="Asia/Tokio")
    assert "startTime (now) is later than endTime (-1s)" in refused(startTime="now", endTime="-1s")
    assert "startTime 6 lies after endingTimestamp 5" in refused(startTime="6", endingTimestamp="5")
    assert "startTime 6 lies after endingOffsetsByTimestamp 5 for orders-0" in refused(
        startTime="6", endingOffsetsByTimestamp='{"orders":{"0":5}}'
    )


def test_columns() -> None:
    assert parse(includeHeaders="TRUE").columns[-1] == "headers"
    assert parse(columns="offset, CREATETIME").columns == ("offset", "createTime")
    assert parse(columns="offset", includeHeaders="true").columns == ("offset", "headers")
    assert parse(columns=",".join(COLUMNS)).columns == COLUMNS
    assert "'time' is not one of key, value" in refused(columns="time")
    assert "named twice" in refused(columns="key,Key")
    assert "includeHeaders is false" in refused(columns="headers", includeHeaders="false")
    assert "true or false" in refused(includeHeaders="yes")


def test_isolation_is_also_taken_as_the_connector_takes_it() -> None:
    assert parse(isolationLevel="read_committed").isolation == "read_committed"
    options = parse(kafka__isolation__level="READ_COMMITTED")
    assert (options.isolation, options.notices) == ("read_committed", ())
    assert "disagree" in refused(isolationLevel="read_committed", kafka__isolation__level="read_uncommitted")
    assert "read_uncommitted or read_committed" in refused(isolationLevel="serializable")


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "", "1.5", "9" * 5000])
def test_min_partitions_is_a_positive_number(wrong: str) -> None:
    assert "option minPartitions: expected a positive number" in refused(minPartitions=wrong)


def test_fail_on_data_loss() -> None:
    assert not parse(failOnDataLoss="False").fail_on_data_loss
    assert "option failOnDataLoss: expected true or false" in refused(failOnDataLoss="0")


def test_json_that_is_too_deep_is_one_error() -> None:
    assert "option startingOffsets" in refused(startingOffsets='{"a":' * 100_000)


def test_every_option_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    for name in (*OPTIONS, *IGNORED):
        assert f"`{name}`" in text, f"docs/spark.md says nothing about the option {name}"
    for column in COLUMNS:
        assert f"`{column}`" in text, f"docs/spark.md says nothing about the column {column}"
    assert json.dumps({"topicA": {"0": 23, "1": -2}}) in text
