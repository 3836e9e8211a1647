"""`tidelog.scan`: its arguments, what it leaves out, what it reports."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.sources.logs import ROW_COLUMNS, TOPIC, LogBuilder, expected, plain, rows_of
from tidelog.clock import ManualClock
from tidelog.errors import DataDirNotFoundError, InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.records.compression import Codec
from tidelog.sources.plan import plan

NINE = 1_373_446_800_000  # 2013-07-10T09:00:00Z


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    builder = LogBuilder(tmp_path, segment_bytes=600)
    for minute in (0, 3, 1, 2, 61, 5, 4, 120, 2):
        builder.append([(NINE + minute * 60_000, b"m%d" % minute, b"value")])
    builder.close()
    return builder


def offsets(builder: LogBuilder, **arguments: Any) -> list[int]:
    column: list[int] = tidelog.scan(builder.data_dir, TOPIC, columns=["offset"], **arguments).read_all()["offset"].to_pylist()
    return column


def test_late_records_are_found_however_late_they_were_appended(builder: LogBuilder) -> None:
    assert offsets(builder, start=NINE + 60_000, end=NINE + 180_000) == [2, 3, 8]


@pytest.mark.parametrize(
    "start",
    [
        NINE + 3_600_000,
        str(NINE + 3_600_000),
        "2013-07-10T10:00",
        "2013-07-10T12:00:00+02:00",
        datetime(2013, 7, 10, 10),
        datetime(2013, 7, 10, 10, tzinfo=UTC),
        datetime(2013, 7, 10, 12, tzinfo=timezone(timedelta(hours=2))),
        "-2h",
    ],
)
def test_times_as_people_and_programs_give_them(builder: LogBuilder, start: Any) -> None:
    assert offsets(builder, start=start, clock=ManualClock(NINE + 3 * 3_600_000)) == [4, 7]


def test_a_day(builder: LogBuilder) -> None:
    assert offsets(builder, start=date(2013, 7, 10), end="2013-07-11") == list(range(9))
    assert offsets(builder, end=date(2013, 7, 10)) == []


def test_a_log_dir_is_a_source(builder: LogBuilder) -> None:
    log_dir = tidelog.LogDir(builder.data_dir)
    assert tidelog.scan(log_dir, TOPIC, columns=["offset"]).read_all().num_rows == 9


def test_schema_and_order_of_columns(builder: LogBuilder) -> None:
    reader = tidelog.scan(str(builder.data_dir), TOPIC)
    assert isinstance(reader, pa.RecordBatchReader)
    table = reader.read_all()
    assert table.column_names == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert table["topic"].to_pylist() == [TOPIC] * 9
    swapped = tidelog.scan(builder.data_dir, TOPIC, columns=["value", "offset"], views=True).read_all()
    assert swapped.schema.names == ["value", "offset"]
    assert swapped.schema.field("value").type == pa.binary_view()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["offset", "colour"]}, "unknown column"),
        ({"columns": ["offset", "offset"]}, "twice"),
        ({"columns": "offset"}, "list of names"),
        ({"columns": []}, "the list of columns is empty"),
        ({"isolation": "committed"}, "unknown isolation"),
        ({"until": "tomorrow"}, "unknown until"),
        ({"start": 5, "end": 4}, "before its start"),
        ({"start": "yesterday-ish"}, "not a time"),
        ({"partitions": 0}, "must be a list"),
        ({"partitions": [0], "offsets": {1: (0, 1)}}, "that this scan does not read"),
        ({"offsets": {0: (5, 3)}}, "partition 0 end at 3, before their start 5"),
        ({"batch_rows": 0}, "positive"),
    ],
)
def test_arguments_that_make_no_sense(builder: LogBuilder, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tidelog.scan(builder.data_dir, TOPIC, **arguments)


def test_what_is_not_there(builder: LogBuilder) -> None:
    with pytest.raises(DataDirNotFoundError):
        tidelog.scan(builder.data_dir / "nowhere", TOPIC)
    with pytest.raises(UnknownTopicOrPartitionError):
        tidelog.scan(builder.data_dir, "payments")
    with pytest.raises(UnknownTopicOrPartitionError):
        tidelog.scan(builder.data_dir, TOPIC, partitions=[7])


def test_partitions_come_one_after_the_other(tmp_path: Path) -> None:
    for partition in (10, 2, 0):
        other = LogBuilder(tmp_path, partition, segment_bytes=300)
        for i in range(10):
            other.append([(i, b"k", b"v")])
        other.close()
    table = tidelog.scan(tmp_path, TOPIC).read_all()
    assert table["partition"].to_pylist() == [0] * 10 + [2] * 10 + [10] * 10
    assert table["offset"].to_pylist() == list(range(10)) * 3
    some = tidelog.scan(tmp_path, TOPIC, partitions=[10, 2], offsets={2: (8, None)}).read_all()
    assert list(zip(some["partition"].to_pylist(), some["offset"].to_pylist(), strict=True)) == [
        (2, 8),
        (2, 9),
        *((10, offset) for offset in range(10)),
    ]


def test_the_log_start_is_respected_inside_a_batch(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.append([(5, None, b"%d" % i) for i in range(10)], codec=Codec.LZ4)
    builder.append([(5, None, b"%d" % i) for i in range(10)], magic=1, codec=Codec.GZIP)
    builder.close(log_start=4)
    assert offsets(builder) == list(range(4, 20))
    assert offsets(builder, offsets={0: (13, 16)}) == [13, 14, 15]


def test_offsets_that_are_not_there_are_noted(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.append([(5, None, None)] * 10)
    builder.close(log_start=4)
    found = plan(tmp_path, TOPIC, offsets={0: (1, 12)})
    assert found.notes == (
        "orders-0: offsets [1, 4) no longer exist: the log starts at 4",
        "orders-0: offsets [10, 12) are past the end of the readable range, 10",
    )
    assert offsets(builder, offsets={0: (1, 12)}) == list(range(4, 10))


def test_records_without_timestamp(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=400)
    builder.append([(NINE, b"k", b"v")] * 3, magic=0)
    builder.append([(NINE, b"k", b"v")] * 3, magic=0, codec=Codec.SNAPPY)
    builder.append([(-1, b"k", b"v"), (NINE, b"k", b"v"), (NINE + 1, b"k", b"v")], magic=1)
    builder.append([(-1, b"k", b"v"), (NINE, b"k", b"v")])
    builder.close()
    everything = tidelog.ScanReport()
    assert rows_of(tidelog.scan(tmp_path, TOPIC, columns=ROW_COLUMNS, report=everything)) == plain(builder.rows)
    assert everything.without_timestamp == 0
    assert not caplog.records
    for bounds in ({"start": 0}, {"end": NINE + 10}, {"start": NINE, "end": NINE + 1}):
        caplog.clear()
        report = tidelog.ScanReport()
        got = rows_of(tidelog.scan(tmp_path, TOPIC, columns=ROW_COLUMNS, report=report, **bounds))
        assert got == plain(expected(builder, **bounds))
        assert report.without_timestamp == 8
        assert [record.message for record in caplog.records] == [
            "orders: 8 records without a timestamp left out, because the scan has a time bound"
        ]


def test_a_v0_topic_has_no_records_in_any_range(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    for _ in range(10):
        builder.append([(NINE, b"k", b"v")] * 3, magic=0)
    builder.close()
    report = tidelog.ScanReport()
    assert tidelog.scan(tmp_path, TOPIC, start=0, report=report).read_all().num_rows == 0
    assert report.without_timestamp == 30


def test_past_the_high_watermark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    for i in range(10):
        builder.append([(NINE + i, b"k", b"v")] * 2)
    builder.close(high_watermark=15)
    report = tidelog.ScanReport()
    assert offsets(builder, report=report) == list(range(20))
    assert report.above_high_watermark == 5
    assert [record.message for record in caplog.records] == [
        "orders-0: offsets [15, 20) lie past the high-watermark checkpoint",
        "orders: delivered 5 records at or past the high-watermark checkpoint",
    ]
    report = tidelog.ScanReport()
    assert offsets(builder, report=report, until="high_watermark") == list(range(15))
    assert report.above_high_watermark == 0
    assert offsets(builder, isolation="read_committed") == list(range(15))


def test_without_a_checkpoint_nothing_is_past_the_high_watermark(builder: LogBuilder, caplog: pytest.LogCaptureFixture) -> None:
    report = tidelog.ScanReport()
    assert offsets(builder, until="high_watermark", report=report) == list(range(9))
    assert report.above_high_watermark == 0
    assert not caplog.records


def test_read_committed_withholds_aborted_and_unfinished_transactions(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=400)
    builder.append([(1, b"a", b"")] * 3, producer_id=1)  # aborted
    builder.append([(2, b"b", b"")] * 3, producer_id=2)  # committed
    builder.append([(3, b"c", b"")] * 3)  # no transaction
    builder.append([(1, b"a", b"")] * 3, producer_id=1)
    builder.end_transaction(1, 5, commit=False)
    builder.append([(4, b"a", b"")] * 3, producer_id=1)  # the same producer's next one, committed
    builder.end_transaction(2, 6, commit=True)
    builder.end_transaction(1, 6, commit=True)
    builder.append([(7, b"d", b"")] * 3, producer_id=3)  # still open
    builder.append([(8, b"e", b"")] * 3)
    builder.close()
    report = tidelog.ScanReport()
    assert offsets(builder, isolation="read_committed", report=report) == [3, 4, 5, 6, 7, 8, 13, 14, 15]
    assert report.aborted_batches == 2
    assert offsets(builder) == [row.offset for row in builder.rows]
    assert offsets(builder, isolation="read_committed", start=2, end=4) == [3, 4, 5, 6, 7, 8]


def test_create_time_survives_append_time(tmp_path: Path) -> None:
    """KIP-32's first option: the deltas of a v2 batch still tell the producers' times."""
    builder = LogBuilder(tmp_path)
    builder.append([(NINE, b"k", b"v"), (NINE - 5, b"k", b"v")], append_time=NINE + 1000)
    builder.append([(NINE, b"k", b"v")], append_time=NINE + 2000, magic=1)
    builder.append([(NINE, b"k", b"v")])
    builder.close()
    table = tidelog.scan(tmp_path, TOPIC, columns=["timestamp", "timestamp_type", "create_time"]).read_all()
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [NINE + 1000, NINE + 1000, NINE + 2000, NINE]
    assert table["timestamp_type"].to_pylist() == [1, 1, 1, 0]
    assert table["create_time"].cast(pa.int64()).to_pylist() == [NINE, NINE - 5, None, NINE]
    assert offsets(builder, start=NINE, end=NINE + 1) == [3]


def test_nothing_is_written(builder: LogBuilder) -> None:
    def state() -> list[tuple[str, int, int]]:
        files = sorted(path for path in builder.data_dir.rglob("*") if path.is_file())
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]

    before = state()
    offsets(builder, start=NINE, isolation="read_committed")
    assert state() == before


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [
        ({"start": "soon"}, "start: not a time: 'soon'"),
        ({"end": "soon"}, "end: not a time: 'soon'"),
        ({"end": "+15m"}, r"end: '\+15m' is relative"),
        ({"tz": "Mars"}, "tz: no such time zone: found 'Mars'"),
        ({"tz": 5}, "tz: found 5"),
        ({"where": "1="}, "where: Parser Error"),
        ({"where": 3}, "where: the expression is not a text: found 3"),
        ({"offsets": {0: "x"}}, "offsets: found {0: 'x'}"),
        ({"offsets": [1]}, r"offsets: found \[1\]"),
        ({"offsets": {0: ("a", None)}}, "offsets: found"),
    ],
)
def test_an_error_names_the_argument(builder: LogBuilder, arguments: dict[str, Any], beginning: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{beginning}"):
        offsets(builder, **arguments)
