"""A broker for the sink's commits without Spark, and what tasks hand over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelog
from tidelog.client.client import Client
from tidelog.spark.sink.broker_target import partition_counts
from tidelog.spark.sink.row_batches import RowBatches
from tidelog.spark.sink.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.sink.spool import Spool, SpooledBatches

PARTITIONS = 3


@pytest.fixture(name="broker", scope="module")
def sink_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    folder: Path = tmp_path_factory.mktemp("sink") / "data"
    with tidelog.Broker(folder, num_partitions=PARTITIONS, offsets_topic_num_partitions=1) as running:
        yield running


@pytest.fixture(name="client")
def sink_client(broker: tidelog.Broker) -> Iterator[Client]:
    with tidelog.connect(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(name="options")
def sink_options(broker: tidelog.Broker, request: pytest.FixtureRequest) -> SinkOptions:
    """Those of a query of its own."""
    return parse_sink_options({"path": broker.bootstrap_servers}, streaming=True).for_query(str(request.node.name))


def spooled(options: SinkOptions, *rows: tuple[str, int], folder: Path | None = None) -> SpooledBatches:
    """Return what a task hands over that was given rows of (topic, value)."""
    table = pa.table(
        {
            "topic": pa.array([topic for topic, _ in rows], pa.string()),
            "value": pa.array([b"%d" % value for _, value in rows], pa.binary()),
        }
    )
    with (
        partition_counts(options) as partitions,
        Spool(None if folder is None else str(folder), "writer", 1, inline_bytes=1 << 20 if folder is None else 0) as spool,
    ):
        made = RowBatches(table.schema, replace(options, batch_bytes=200), partitions)
        for batch in table.to_batches():
            for key, data in made.add(batch):
                spool.add(key, data)
        for key, data in made.finish():
            spool.add(key, data)
        return spool.finish()


def values(client: Client, topic: str, isolation: str = "read_committed") -> list[int]:
    return sorted(int(record.value or b"") for record in client.read(topic, isolation=isolation))  # type: ignore[arg-type]
