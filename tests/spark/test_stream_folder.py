"""A stream from a growing folder, batch by batch, without Spark: nothing lost, nothing twice, and losses are errors."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.sources.logs import TOPIC, LogBuilder, expected
from tests.spark.stream_query import Query, Rows
from tidelog.errors import OffsetOutOfRangeError, SegmentChangedError, TidelogError, UnknownTopicOrPartitionError
from tidelog.records.compression import Codec

NOON = 1_000_000


def query(folder: Path, **options: Any) -> Query:
    return Query({"path": folder, "subscribe": TOPIC, "startingOffsets": "earliest"} | options)


def fill(builder: LogBuilder, count: int, *, size: int = 5) -> None:
    """Append so many records, in batches, one second after the other."""
    behind = builder.next_offset + count
    for first in range(builder.next_offset, behind, size):
        builder.append([(NOON + 1_000 * at, b"k", b"v%d" % at) for at in range(first, min(first + size, behind))])


def rows(partition: int, first: int, behind: int) -> Rows:
    return [(TOPIC, partition, offset) for offset in range(first, behind)]


def checkpoint(folder: Path, name: str, offsets: dict[tuple[str, int], int]) -> None:
    lines = "".join(f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items())
    (folder / name).write_text(f"0\n{len(offsets)}\n{lines}")


HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"

steps = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.lists(st.integers(-1, 60), min_size=1, max_size=6)),
    st.tuples(st.just("transactional"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("roll"), st.integers(0, 2), st.none()),
    st.tuples(st.sampled_from(["batch", "batch", "planned", "read", "restart", "once"]), st.none(), st.none()),
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "maxOffsetsPerTrigger": st.integers(1, 12),
        "maxTimePerTrigger": st.integers(1, 40).map(lambda ms: f"{ms}ms"),
        "maxRecordsPerPartition": st.integers(1, 5),
        "minPartitions": st.integers(1, 5),
        "isolationLevel": st.sampled_from(["read_committed", "read_uncommitted"]),
        "startTime": st.integers(NOON, NOON + 50).map(str),
    },
)


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=25), limits)
def test_every_record_once_whatever_happens(happened: list[Any], options: dict[str, Any]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        builders = {0: LogBuilder(folder, 0, segment_bytes=400)}
        builders[0].append([(NOON, b"k", b"v")])
        given_start = {} if "startTime" in options else {"startingOffsets": "earliest"}
        stream = Query({"path": folder, "subscribe": TOPIC} | given_start | options)
        read: Rows = []
        crashed: Rows | None = None
        for kind, partition, what in happened:
            if partition is not None and partition not in builders:
                builders[partition] = LogBuilder(folder, partition, segment_bytes=400)
            builder = builders[partition or 0]
            if kind == "append":
                builder.append([(NOON + ms if ms >= 0 else -1, b"k", b"v") for ms in what])
            elif kind == "transactional":
                builder.append([(NOON + at, b"k", b"v") for at in range(what)], producer_id=7)
            elif kind == "end":
                if 7 in builder.open:
                    builder.end_transaction(7, NOON, commit=what)
            elif kind == "roll":
                if builder.next_offset > max(int(path.stem) for path in builder.logs()):
                    builder.roll()
            elif kind in ("planned", "read"):
                rows_now = stream.run(crashes=kind)
                if kind == "read" and rows_now is not None:
                    assert crashed is None or sorted(rows_now) == sorted(crashed)
                    crashed = rows_now
                stream.restart()
            elif kind == "restart":
                stream.restart()
            else:
                rows_now = stream.run(once=kind == "once")
                if rows_now is not None:
                    assert crashed is None or sorted(rows_now) == sorted(crashed)
                    read, crashed = read + rows_now, None
        read += stream.run_all()
        stream.close()
        start = int(options["startTime"]) if "startTime" in options else None
        committed = options.get("isolationLevel") == "read_committed"
        for partition, builder in builders.items():
            wanted = [row.offset for row in expected(builder, start, committed=committed)]
            assert [offset for _, at, offset in read if at == partition] == wanted


def test_batches_are_limited_by_offsets(tmp_path: Path) -> None:
    for partition, count in ((0, 30), (1, 70)):
        fill(LogBuilder(tmp_path, partition), count)
    stream = query(tmp_path, maxOffsetsPerTrigger=40)
    assert [len(stream.run() or ()) for _ in range(4)] == [40, 40, 20, 0]
    assert json.loads(stream.offsets[0]) == {TOPIC: {"0": 12, "1": 28}}
    assert query(tmp_path, maxOffsetsPerTrigger=40).run(once=True) == [*rows(0, 0, 30), *rows(1, 0, 70)]


def test_batches_are_limited_by_time(tmp_path: Path) -> None:
    fill(LogBuilder(tmp_path, 0), 30)
    behind = LogBuilder(tmp_path, 1)
    behind.append([(NOON + 15_000, None, b"a"), (NOON + 1_000, None, b"late"), (NOON + 20_000, None, b"b")])
    stream = query(tmp_path, maxTimePerTrigger="10s")
    assert stream.run() == [*rows(0, 0, 10), *rows(1, 0, 2)]
    assert stream.run() == rows(0, 10, 20)
    assert stream.run() == [*rows(0, 20, 30), *rows(1, 2, 3)]
    assert stream.run() is None


def test_a_small_batch_waits(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    fill(builder, 3)
    stream = query(tmp_path, minOffsetsPerTrigger=10, maxTriggerDelay="1h")
    assert stream.run() == rows(0, 0, 3)
    fill(builder, 9)
    assert stream.run() is None
    fill(builder, 1)
    assert stream.run() == rows(0, 3, 13)
    fill(builder, 1)
    available = Query(stream.options, available_now=True)
    available.offsets, available.committed = list(stream.offsets), stream.committed
    assert available.run() == rows(0, 13, 14)


def test_available_now_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    fill(builder, 10)
    stream = Query(
        {"path": tmp_path, "subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}, available_now=True
    )
    assert stream.run() == rows(0, 0, 4)
    fill(builder, 10)
    fill(LogBuilder(tmp_path, 1), 5)
    assert stream.run_all() == rows(0, 4, 10)
    stream.restart(available_now=True)
    assert sorted(stream.run_all()) == [*rows(0, 10, 20), *rows(1, 0, 5)]


def test_a_stream_begins_at_the_latest_record_and_a_crash_does_not_move_that(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    fill(builder, 10)
    stream = Query({"path": tmp_path, "subscribe": TOPIC})
    stream.run(crashes="planned")
    fill(builder, 5)
    stream.restart()
    assert stream.run_all() == rows(0, 10, 15)
    fill(builder, 5)
    assert stream.run() == rows(0, 15, 20)


@pytest.mark.parametrize("available_now", [False, True])
def test_latest_with_available_now_is_an_empty_batch(tmp_path: Path, available_now: bool) -> None:
    builder = LogBuilder(tmp_path)
    fill(builder, 10)
    stream = Query({"path": tmp_path, "subscribe": TOPIC}, available_now=available_now)
    fill(builder, 5)
    assert stream.run() == []
    stream.restart(available_now=available_now)
    assert stream.run_all() == (rows(0, 10, 15) if available_now else [])


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startTime": NOON + 4_500}, 5),
        ({"startTime": "1970-01-01T00:16:46Z"}, 6),
        ({"startTime": NOON + 10**9}, 10),
        ({"startingTimestamp": NOON + 4_000}, 4),
        ({"startingOffsetsByTimestamp": json.dumps({TOPIC: {"0": NOON + 3_000}})}, 3),
        ({"startingTimestamp": NOON + 10**9, "startingOffsetsByTimestampStrategy": "latest"}, 10),
        ({"startingOffsets": json.dumps({TOPIC: {"0": 7}})}, 7),
        ({"startingOffsets": json.dumps({TOPIC: {"0": -1}})}, 10),
        ({"startingOffsets": json.dumps({TOPIC: {"0": -2}})}, 0),
        ({"startingOffsets": json.dumps({TOPIC: {"0": 2}}), "startTime": NOON + 5_000}, 5),
    ],
    ids=str,
)
def test_where_a_stream_begins(tmp_path: Path, options: dict[str, Any], first: int) -> None:
    fill(LogBuilder(tmp_path), 10)
    stream = Query({"path": tmp_path, "subscribe": TOPIC} | options)
    assert stream.run_all() == rows(0, first, 10)


def test_a_start_by_time_holds_for_all_that_comes(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    fill(builder, 10)
    stream = Query({"path": tmp_path, "subscribe": TOPIC, "startTime": NOON + 5_000})
    assert stream.run_all() == rows(0, 5, 10)
    builder.append([(NOON + 1_000, None, b"late"), (NOON + 5_000, None, b"not late"), (-1, None, b"timeless")])
    assert stream.run() == rows(0, 11, 12)


def test_the_high_watermark_ends_a_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(LogBuilder(tmp_path), 10)
    checkpoint(tmp_path, HIGH_WATERMARKS, {(TOPIC, 0): 6})
    stream = query(tmp_path)
    assert stream.run_all() == rows(0, 0, 6)
    assert stream.reader.reportLatestOffset() == {TOPIC: {"0": 6}}
    Query(stream.options, available_now=True)
    assert "e.g. orders-0 offsets [6, 10): past the high-watermark checkpoint" in caplog.text
    checkpoint(tmp_path, HIGH_WATERMARKS, {(TOPIC, 0): 9})
    assert stream.run_all() == rows(0, 6, 9)
    latest = Query({"path": tmp_path, "subscribe": TOPIC})
    latest.run()
    checkpoint(tmp_path, HIGH_WATERMARKS, {(TOPIC, 0): 10})
    assert latest.run() == rows(0, 9, 10)


def test_an_open_transaction_ends_a_committed_stream(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    fill(builder, 5)
    stream = query(tmp_path, isolationLevel="read_committed")
    assert stream.run() == rows(0, 0, 5)
    builder.append([(NOON, None, b"1"), (NOON, None, b"2")], producer_id=1)
    fill(builder, 2)
    assert stream.run() is None
    builder.end_transaction(1, NOON, commit=False)
    assert stream.run() == rows(0, 7, 9)


def test_logs_that_did_not_change_stay_open(tmp_path: Path) -> None:
    builders = [LogBuilder(tmp_path, partition) for partition in range(3)]
    for builder in builders:
        fill(builder, 5)
    stream = query(tmp_path)
    stream.run()
    source: Any = stream.reader._source
    logs = [source.log_dir.log(TOPIC, partition) for partition in range(3)]
    fill(builders[1], 5)
    assert stream.run() == rows(1, 5, 10)
    again = [source.log_dir.log(TOPIC, partition) for partition in range(3)]
    assert [old is new for old, new in zip(logs, again, strict=True)] == [True, False, True]


# --- What comes and goes


def test_partitions_and_topics_of_a_pattern_are_read_from_their_start(tmp_path: Path) -> None:
    fill(LogBuilder(tmp_path, 0), 5)
    stream = Query({"path": tmp_path, "subscribePattern": "ord.*", "startingOffsets": "latest"})
    assert stream.run() == []
    fill(LogBuilder(tmp_path, 1), 2)
    fill(LogBuilder(tmp_path, 0, topic="ordered"), 3)
    fill(LogBuilder(tmp_path, 0, topic="others"), 3)
    assert sorted(stream.run() or []) == [("ordered", 0, 0), ("ordered", 0, 1), ("ordered", 0, 2), *rows(1, 0, 2)]
    stream.restart()
    assert stream.run() is None


def test_a_partition_that_has_lost_records_before_it_was_seen(tmp_path: Path) -> None:
    fill(LogBuilder(tmp_path, 0), 5)
    strict, easy = query(tmp_path), query(tmp_path, failOnDataLoss="false")
    for stream in (strict, easy):
        assert stream.run() == rows(0, 0, 5)
    fill(LogBuilder(tmp_path, 1, start_offset=3), 4)
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-1 offsets \[0, 3\), 3 in all: the log starts at 3"):
        strict.run()
    assert easy.run() == rows(1, 3, 7)


def test_a_pattern_may_match_nothing_as_yet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(LogBuilder(tmp_path, 0, topic="others"), 3)
    stream = Query({"path": tmp_path, "subscribePattern": "ord.*", "startingOffsets": "earliest"})
    assert [stream.run() for _ in range(3)] == [[], None, None]
    assert len([record for record in caplog.records if "matches no topic" in record.getMessage()]) == 1
    fill(LogBuilder(tmp_path, 0), 3)
    assert stream.run() == rows(0, 0, 3)


def remove(path: Path) -> None:
    """Delete a partition's folder, as Kafka does: renamed first."""
    shutil.rmtree(path.rename(path.with_name(f"{path.name}.0123456789abcdef0123456789abcdef-delete")))


def retention(folder: Path, builder: LogBuilder) -> int:
    """Remove all segments but the last; return where the log starts then."""
    for path in builder.logs()[:-1]:
        for other in path.parent.glob(f"{path.stem}.*"):
            other.unlink()
    return int(builder.logs()[0].stem)


def cut(folder: Path, builder: LogBuilder) -> None:
    """Begin the topic anew under the same name, with fewer records."""
    remove(builder.directory)
    fill(LogBuilder(folder), 3)


def delete(folder: Path, builder: LogBuilder) -> None:
    remove(builder.directory)
    if not (folder / "other-0").exists():
        LogBuilder(folder, topic="other")


@pytest.mark.parametrize(
    ("does", "error", "said"),
    [
        (retention, OffsetOutOfRangeError, r"orders-0 offsets \[20, \d\d\), \d+ in all: the log starts at"),
        (
            cut,
            OffsetOutOfRangeError,
            r"orders-0 ends at 3, but the stream was at 20: it was truncated, or deleted and created again",
        ),
        (delete, UnknownTopicOrPartitionError, "no topic 'orders'"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_lost_is_one_clear_error(
    tmp_path: Path, does: Callable[[Path, LogBuilder], Any], error: type[TidelogError], said: str, restarted: bool
) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    fill(builder, 20)
    stream = query(tmp_path)
    assert stream.run() == rows(0, 0, 20)
    fill(builder, 20)
    does(tmp_path, builder)
    if restarted:
        stream.restart()
    with pytest.raises(error, match=said) as raised:
        stream.run()
    assert "\n" not in str(raised.value)
    assert error is UnknownTopicOrPartitionError or "to continue without them, set failOnDataLoss=false" in str(raised.value)


def test_without_failing_a_loss_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tidelog.spark")
    builder = LogBuilder(tmp_path, segment_bytes=300)
    fill(builder, 20)
    stream = query(tmp_path, failOnDataLoss="false")
    stream.run()
    fill(builder, 20)
    start = retention(tmp_path, builder)
    assert stream.run() == rows(0, start, 40)
    assert f"orders-0 offsets [20, {start}), {start - 20} in all: the log starts at {start}" in caplog.text
    cut(tmp_path, builder)
    assert stream.run(crashes="planned") is None
    stream.restart()
    assert stream.run() == rows(0, 0, 3)
    assert "orders-0 ends at 3, but the stream was at 40" in caplog.text
    delete(tmp_path, builder)
    stream.restart()
    assert stream.run() == []
    assert "orders-0 has been deleted, and the stream was at 3" in caplog.text
    fill(LogBuilder(tmp_path), 2)
    assert stream.run() == rows(0, 0, 2)


def test_a_topic_created_again_with_more_records_is_noticed_by_its_id(tmp_path: Path) -> None:
    def create(topic_id: str, count: int) -> None:
        builder = LogBuilder(tmp_path)
        (builder.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        fill(builder, count)

    create("AAAAAAAAAAAAAAAAAAAAAQ", 10)
    strict, easy = query(tmp_path), query(tmp_path, failOnDataLoss="false")
    assert strict.run() == easy.run() == rows(0, 0, 10)
    remove(tmp_path / f"{TOPIC}-0")
    create("AAAAAAAAAAAAAAAAAAAAAg", 25)
    with pytest.raises(
        OffsetOutOfRangeError, match="orders-0 ends at 25, but the stream was at 10: it was deleted and created again"
    ):
        strict.run()
    assert easy.run_all() == rows(0, 0, 25)


@pytest.mark.parametrize("fails", [True, False])
def test_a_segment_that_vanishes_between_plan_and_read(tmp_path: Path, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    fill(builder, 40)
    stream = query(tmp_path, failOnDataLoss=str(fails).lower())
    stream.run(crashes="planned")
    planned = stream.reader.partitions(json.loads('{"orders": {"0": 0}}'), json.loads(stream.offsets[0]))
    start = retention(tmp_path, builder)
    worker = stream._new_reader()

    def read() -> list[int]:
        return [offset for part in planned for batch in worker.read(part) for offset in batch.column("offset").to_pylist()]

    if fails:
        with pytest.raises(SegmentChangedError):
            read()
        # The batch planned again says what is lost.
        stream.restart()
        with pytest.raises(OffsetOutOfRangeError, match=rf"offsets \[0, {start}\)"):
            stream.read('{"orders": {"0": 0}}', stream.offsets[0])
    else:
        assert read() == list(range(start, 40))
        assert "skipping the rest of this split" in caplog.text


def test_a_segment_on_its_way_out_is_still_read(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    fill(builder, 40)
    stream = query(tmp_path)
    start, end = '{"orders": {"0": 0}}', '{"orders": {"0": 40}}'
    planned = stream.reader.partitions(json.loads(start), json.loads(end))
    for path in builder.logs()[:-1]:
        path.rename(path.with_name(f"{path.name}.deleted"))
    worker = stream._new_reader()
    found = [offset for part in planned for batch in worker.read(part) for offset in batch.column("offset").to_pylist()]
    assert found == list(range(40))


def test_checkpoints_of_the_connector_are_gone_on_with(tmp_path: Path) -> None:
    fill(LogBuilder(tmp_path), 10)
    stream = query(tmp_path)
    stream.offsets, stream.committed = ['{"orders":{"0":4}}'], 1
    assert stream.run() == rows(0, 4, 10)


def test_tasks_are_as_many_as_are_wanted(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=10**6)
    builder.append([(NOON, None, b"x" * 1_000)] * 10, codec=Codec.ZSTD)
    fill(builder, 1_000)
    ends = ({TOPIC: {"0": 0}}, {TOPIC: {"0": 1_010}})

    def tasks(**options: Any) -> int:
        stream = query(tmp_path, **options)
        return len(stream.reader.partitions(*ends))

    assert tasks() == 1
    assert tasks(minPartitions=4) == 4
    assert tasks(maxRecordsPerPartition=100) == 11
