"""Real Kafka 3.9.1 with LocalTieredStorage: killed while it copies and deletes, then read as its consumer read it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.kafka import why_not
from tests.kafka.clients import consume, produce
from tests.kafka.generate_tiered import START_MS, rows
from tests.kafka.java import wait_until
from tests.kafka.tiered import TOPIC, TieredKafka
from tests.patience import PATIENCE_S
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, MAX_TIMESTAMP, TopicPartition
from tidelog.sources.opening import open_source, tiered

pytestmark = [pytest.mark.interop, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
KEY = TopicPartition("orders", 0)


def test_a_killed_broker(tmp_path: Path) -> None:
    with TieredKafka(tmp_path) as broker:
        broker.create_topic("orders", config={**TOPIC, "retention.bytes": "16000"})
        produce(broker.bootstrap, "orders", rows(300, 5), batch_records=5)
        broker.wait_until_tiered("orders")
        produce(broker.bootstrap, "orders", rows(200, 6, START_MS + 300_000), batch_records=5)
        broker.kill()
        broker.start()  # The next leader epoch: what was half copied is copied again.
        produce(broker.bootstrap, "orders", rows(100, 7, START_MS + 500_000), batch_records=5)
        broker.wait_until_tiered("orders")
        address = str(tiered(broker.data, str(broker.remote)))
        targets = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)

        def has_same_ends() -> bool:
            """Kafka may still be deleting local segments, and notices that later than the folder shows it."""
            with open_source(broker.bootstrap) as theirs, open_source(address) as ours:
                found = [[one.find({KEY: target})[KEY] for target in targets] for one in (theirs, ours, theirs)]
            return found[0] == found[1] == found[2]

        wait_until(has_same_ends, "the same ends", PATIENCE_S)
        served = consume(broker.bootstrap, "orders")
        with open_source(address) as ours:
            largest = ours.find({KEY: MAX_TIMESTAMP})[KEY]
            for time in sorted({row.timestamp for row in served})[::9]:
                first = next(row for row in served if row.timestamp >= time)
                one = ours.find({KEY: time})[KEY]
                assert one is not None and (one.offset, one.timestamp) == (first.offset, first.timestamp)
        best = max(served, key=lambda row: (row.timestamp, -row.offset))
        assert largest is not None and (largest.offset, largest.timestamp) == (best.offset, best.timestamp)
        read = tidelog.scan(broker.data, "orders", tier=str(broker.remote)).read_all().to_pylist()
        assert [(row["offset"], row["key"], row["value"]) for row in read] == [(row.offset, row.key, row.value) for row in served]
