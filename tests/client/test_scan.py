"""`tidelog.scan("host:port", …)` and its splits: the same rows as from the folder that the broker serves."""

from __future__ import annotations

import itertools
import logging
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.reader.golden import GOLDEN, RELEASES
from tidelog.errors import BrokerUnreachableError, InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.sources.offset_cuts import MIN_SPLIT_OFFSETS
from tidelog.sources.plan import plan
from tidelog.times import MAX_TIME_MS

TOPICS = [(release, topic) for release in RELEASES for topic in tidelog.LogDir(GOLDEN / release / "log").topics()]
COLUMNS = ["offset", "timestamp", "timestamp_type", "create_time", "key", "value", "headers", "partition", "topic"]


def folder(release: str) -> str:
    return str(GOLDEN / release / "log")


@pytest.mark.parametrize(("release", "topic"), TOPICS, ids=[f"{release}-{topic}" for release, topic in TOPICS])
def test_everything_that_kafka_wrote(release: str, topic: str, golden: dict[str, str]) -> None:
    for isolation in ("read_uncommitted", "read_committed"):
        wanted = tidelog.scan(folder(release), topic, columns=COLUMNS, isolation=isolation).read_all()
        found = tidelog.scan(golden[release], topic, columns=COLUMNS, isolation=isolation).read_all()
        assert found.equals(wanted)


@examples(25)
@given(data=st.data())
def test_any_range(data: st.DataObject, golden: dict[str, str]) -> None:
    release, topic = data.draw(st.sampled_from(TOPICS))
    times = tidelog.scan(folder(release), topic, columns=["timestamp"]).read_all()["timestamp"].cast(pa.int64())
    near = sorted({time for time in times.to_pylist() if time is not None} or {1_000})
    moment = st.builds(
        lambda time, step: min(max(0, time + step), MAX_TIME_MS), st.sampled_from(near), st.sampled_from([-1, 0, 1])
    )
    start, end = sorted((data.draw(moment), data.draw(moment)))
    arguments: dict[str, Any] = {
        "start": data.draw(st.sampled_from([None, start])),
        "end": data.draw(st.sampled_from([None, end])),
        "isolation": data.draw(st.sampled_from(["read_uncommitted", "read_committed"])),
        "offsets": data.draw(st.none() | st.just({0: (data.draw(st.integers(0, 300)), 300)})),
        "columns": data.draw(st.sampled_from([None, ["offset"], ["value", "timestamp"]])),
        "views": data.draw(st.booleans()),
    }
    report = tidelog.ScanReport()
    found = tidelog.scan(golden[release], topic, report=report, **arguments).read_all()
    assert found.equals(tidelog.scan(folder(release), topic, **arguments).read_all())
    assert report.records == found.num_rows


def test_splits_are_read_alone_anywhere(golden: dict[str, str]) -> None:
    """Cut where it may be, pickled, read by nobody who knows of the others: together they are the partition."""
    brokers, topic = golden["kafka-3.9.1"], "v2-lz4-ct"
    planned = plan(brokers, topic, start=0, min_splits=3)
    assert len(planned.splits) == 1 < 1_500 // MIN_SPLIT_OFFSETS + 1
    whole = tidelog.scan(folder("kafka-3.9.1"), topic, columns=["offset"]).read_all()["offset"].to_pylist()
    (split,) = planned.splits
    assert (split.start_offset, split.end_offset) == (0, 1_500)
    assert planned.size_bytes == split.size_bytes > 1_500
    cut = [
        pickle.loads(pickle.dumps(replace(split, start_offset=low, end_offset=high)))
        for low, high in itertools.pairwise((0, 1, 700, 701, 1_499, 1_500))
    ]
    found = [batch["offset"].to_pylist() for one in cut for batch in one.read(["offset"])]
    assert list(itertools.chain(*found)) == whole
    assert str(cut[1]) == f"{brokers} v2-lz4-ct-0 offsets 1..700"


def test_large_partitions_are_cut(tmp_path: Any) -> None:
    with (
        tidelog.Broker(data_dir=tmp_path / "data", log_retention_ms=-1) as broker,
        tidelog.connect(broker.bootstrap_servers) as client,
    ):
        client.produce_many("t", [tidelog.NewRecord(b"", timestamp=i) for i in range(5_000)], compression="lz4")
        planned = plan(broker.bootstrap_servers, "t", min_splits=3)
        assert [(s.start_offset, s.end_offset) for s in planned.splits] == [(0, 1_666), (1_666, 3_333), (3_333, 5_000)]
        planned = plan(broker.bootstrap_servers, "t", split_bytes=planned.size_bytes // 4 + 1, start=1_000)
        assert planned.partitions[0].start_offset <= 1_000
        tables = [pa.Table.from_batches(split.read(["offset", "timestamp"])) for split in planned.splits]
        assert pa.concat_tables(tables)["offset"].to_pylist() == list(range(1_000, 5_000))


def test_counts(golden: dict[str, str]) -> None:
    report = tidelog.ScanReport()
    tidelog.scan(golden["kafka-3.9.1"], "transactions", isolation="read_committed", report=report).read_all()
    wanted = tidelog.ScanReport()
    tidelog.scan(folder("kafka-3.9.1"), "transactions", isolation="read_committed", report=wanted).read_all()
    assert report.records == wanted.records
    assert report.aborted_batches == wanted.aborted_batches > 0
    assert report.bytes_read > 0
    report = tidelog.ScanReport()
    tidelog.scan(golden["kafka-2.4.1"], "v0-none-ct", start=0, report=report).read_all()
    assert (report.records, report.without_timestamp) == (0, 600)


def test_offsets_that_are_not_there_are_told(golden: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidelog.sources"):
        table = tidelog.scan(golden["kafka-3.9.1"], "deleted-prefix", offsets={0: (0, 10_000)}).read_all()
    assert table.num_rows == 267
    assert [message.split(": ")[1].split(" ")[0] for message in caplog.messages] == ["offsets", "offsets"]
    assert "no longer exist" in caplog.messages[0]
    assert "are past the end of the readable range" in caplog.messages[1]


def test_errors_come_at_once(golden: dict[str, str]) -> None:
    brokers = golden["kafka-3.9.1"]
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nowhere'"):
        tidelog.scan(brokers, "nowhere")
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 5"):
        tidelog.scan(brokers, "two-partitions", partitions=[0, 5])
    with pytest.raises(InvalidArgumentError, match="time maps need a folder"):
        tidelog.scan(brokers, "two-partitions", time_map_dir="maps")
    with pytest.raises(InvalidArgumentError, match="before its start"):
        tidelog.scan(brokers, "two-partitions", start=2, end=1)
    with pytest.raises(BrokerUnreachableError):
        tidelog.scan("127.0.0.1:1", "two-partitions")
    with pytest.raises(InvalidArgumentError, match="different security protocols"):
        tidelog.scan("SSL://a:1", "two-partitions")


def test_a_reader_that_is_forgotten(golden: dict[str, str]) -> None:
    """No socket is left to the garbage collector's complaint."""
    reader = tidelog.scan(golden["kafka-3.9.1"], "two-partitions")
    del reader
    reader = tidelog.scan(golden["kafka-3.9.1"], "two-partitions", batch_rows=10)
    assert reader.read_next_batch().num_rows == 10
    del reader


def test_a_folder_of_such_a_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka:9092").symlink_to(folder("kafka-3.9.1"))
    monkeypatch.chdir(tmp_path)
    assert tidelog.scan("./kafka:9092", "two-partitions").read_all().num_rows == 500
    assert len(plan(tmp_path / "kafka:9092", "two-partitions").partitions) == 2
