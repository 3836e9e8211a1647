"""A stream from brokers, batch by batch, without Spark: the batches of the folder that they serve, and what brokers alone do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tests.spark.stream_query import Query
from tests.spark.test_stream_folder import NOON, fill, rows
from tidelog import NewRecord
from tidelog.errors import OffsetOutOfRangeError
from tidelog.sources import offset_source
from tidelog.sources.brokers.broker_split import scan_cluster
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

START = {"startingOffsets": "earliest"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with times out of order, transactions and gaps, and brokers that serve it."""
    folder = tmp_path_factory.mktemp("served")
    first = LogBuilder(folder, 0, segment_bytes=400)
    fill(first, 20)
    first.append([(NOON + 10**9, None, b"of the future")])
    fill(first, 20)
    first.append([(NOON + 1, None, b"late")] * 3, gaps={1})
    second = LogBuilder(folder, 1, segment_bytes=400)
    second.append([(NOON + at, None, b"aborted") for at in range(4)], producer_id=1)
    second.end_transaction(1, NOON, commit=False)
    fill(second, 30)
    second.append([(NOON + at, None, b"open") for at in range(4)], producer_id=2)
    fill(second, 5)
    first.close()
    second.close()
    with tidelog.Broker(data_dir=folder, log_retention_ms=-1) as broker:
        yield folder, broker.bootstrap_servers


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"isolationLevel": "read_committed"},
        {"maxOffsetsPerTrigger": 7},
        {"maxTimePerTrigger": "5s"},
        {"maxTimePerTrigger": "5s", "isolationLevel": "read_committed", "maxOffsetsPerTrigger": 12},
        {"startingOffsets": "latest"},
        {"startTime": NOON + 12_000},
        {"startTime": NOON + 10**10},
        {"startTime": NOON + 25_000, "isolationLevel": "read_committed", "maxTimePerTrigger": "10s"},
        {"startingTimestamp": NOON + 12_000},
        {"startingOffsets": json.dumps({TOPIC: {"0": 3, "1": -1}})},
        {"maxRecordsPerPartition": 4, "minPartitions": 3},
    ],
    ids=str,
)
def test_batches_are_the_folder_s(served: tuple[Path, str], options: dict[str, Any]) -> None:
    folder, brokers = served
    starts = {} if options.keys() & {"startTime", "startingTimestamp"} else START
    both = [Query({"path": place, "subscribe": TOPIC} | starts | options) for place in (folder, brokers)]
    found = []
    for stream in both:
        stream.run_all()
        found.append(([sorted(batch) for batch in stream.batches], stream.offsets, stream.reader.reportLatestOffset()))
        stream.close()
    assert found[0] == found[1]


def test_what_comes_is_read_over_connections_that_are_kept() -> None:
    # Records of long ago would go at the broker's first look.
    with tidelog.Broker(log_retention_ms=-1) as broker, tidelog.connect(broker.bootstrap_servers) as client:
        client.produce_many(TOPIC, [NewRecord(value=b"v", timestamp=NOON + at) for at in range(5)])
        stream = Query({"path": broker.bootstrap_servers, "subscribe": TOPIC} | START)
        assert stream.run() == rows(0, 0, 5)
        source: Any = stream.reader._source
        connections = [connection for idle in source.cluster._idle.values() for connection in idle]
        assert connections
        client.produce_many(TOPIC, [NewRecord(value=b"v", timestamp=NOON + at) for at in range(5)])
        assert stream.run() == rows(0, 5, 10)
        assert stream.run() is None
        assert [connection for idle in source.cluster._idle.values() for connection in idle] == connections
        stream.close()


def test_a_record_of_the_future_below_the_position_hides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.append([(NOON + 10**9, None, b"of the future"), (NOON, None, b"v")])
    fill(builder, 60)
    builder.close()
    with tidelog.Broker(data_dir=tmp_path, log_retention_ms=-1) as broker:
        stream = Query({"path": broker.bootstrap_servers, "subscribe": TOPIC, "maxTimePerTrigger": "20s"} | START)
        while stream.run() is not None:
            pass
        assert [len(batch) for batch in stream.batches] == [20, 20, 20, 2]
        monkeypatch.setattr(offset_source, "WALK_BYTES", 1)
        short = Query({"path": broker.bootstrap_servers, "subscribe": TOPIC, "maxTimePerTrigger": "20s"} | START)
        assert short.run_all() == rows(0, 0, 62)
        assert len(short.batches) > 4 and max(len(batch) for batch in short.batches) <= 20


def test_retention_between_two_batches_and_between_plan_and_read(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=300)
    fill(builder, 40)
    builder.close()
    with tidelog.Broker(data_dir=tmp_path, log_retention_ms=-1) as broker:
        strict, easy = (
            Query(
                {"path": broker.bootstrap_servers, "subscribe": TOPIC, "failOnDataLoss": fails, "maxOffsetsPerTrigger": 5} | START
            )
            for fails in ("true", "false")
        )
        for stream in (strict, easy):
            assert stream.run() == rows(0, 0, 5)
            stream.run(crashes="planned")
        planned = [stream.reader.partitions({TOPIC: {"0": 5}}, {TOPIC: {"0": 40}}) for stream in (strict, easy)]
        delete_records(broker.bootstrap_servers, 17)
        with pytest.raises(OffsetOutOfRangeError, match="the broker does not have this offset"):
            read(strict, planned[0])
        assert read(easy, planned[1]) == list(range(17, 40))
        with pytest.raises(OffsetOutOfRangeError, match=r"orders-0 offsets \[5, 10\), 5 in all: the log starts at 17"):
            strict.run()
        assert easy.run() == []
        assert easy.run_all() == rows(0, 17, 40)


def test_a_query_outlives_a_broker(tmp_path: Path) -> None:
    fill(builder := LogBuilder(tmp_path), 20)
    builder.close()
    port = 0
    stream: Query | None = None
    for turn in range(3):
        with (
            tidelog.Broker(data_dir=tmp_path, port=port, log_retention_ms=-1) as broker,
            tidelog.connect(broker.bootstrap_servers) as client,
        ):
            port = broker.port
            if stream is None:
                stream = Query({"path": broker.bootstrap_servers, "subscribe": TOPIC} | START)
                assert stream.run() == rows(0, 0, 20)
            client.produce(TOPIC, b"v", timestamp=NOON)
            assert stream.run() == rows(0, 20 + turn, 21 + turn)


def read(stream: Query, planned: Any) -> list[int]:
    worker = stream._new_reader()
    return [offset for part in planned for batch in worker.read(part) for offset in batch.column("offset").to_pylist()]


def delete_records(brokers: str, before: int) -> None:
    cluster = scan_cluster(brokers)
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=10_000)
    answer = cluster.ask_any(request, DeleteRecordsResponse, newest=2)
    assert answer.topics[0].partitions[0].low_watermark == before
    cluster.close()
