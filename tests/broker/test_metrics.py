"""What a broker counts: histograms, append latencies, and that a scrape sees one moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.broker.raw import RawClient
from tests.fields import check_fields
from tidelog.broker.loop.metrics import LATENCY_BUCKETS, Histogram, Metrics
from tidelog.broker.server.scraped.prometheus import BrokerCollector, Snapshot, snapshot
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.partition.append.append_info import append_info_fast
from tidelog.testing import Broker
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LARGEST = 1 << (LATENCY_BUCKETS - 2)


@given(st.lists(st.integers(0, LARGEST) | st.sampled_from([2**n for n in range(40)]), max_size=30))
def test_a_histogram_counts_every_value_once_and_where_it_belongs(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    assert (histogram.count, histogram.total) == (len(values), sum(values))
    for exponent in range(LATENCY_BUCKETS):
        assert histogram.at_most(exponent) == sum(value <= 2**exponent for value in values)


def test_what_is_too_large_is_in_the_last_bucket() -> None:
    histogram = Histogram()
    histogram.record(1 << 70)
    assert (histogram.count, histogram.at_most(LATENCY_BUCKETS - 2)) == (1, 0)


@pytest.mark.parametrize(
    ("max_timestamp", "log_append_time", "created_ms", "latency_ms", "ahead"),
    [
        (1000, -1, -1, 250, 0),
        (1250, -1, -1, 0, 0),
        (1300, -1, -1, 0, 1),
        (-1, -1, -1, None, 0),
        (1250, 1250, -1, None, 0),
        (1250, 1250, 1050, 200, 0),
        (1000, -1, 7, 250, 0),
    ],
)
def test_append_latency(max_timestamp: int, log_append_time: int, created_ms: int, latency_ms: int | None, ahead: int) -> None:
    metrics = Metrics()
    metrics.appended("orders", append_info_fast(5, 7, max_timestamp, log_append_time, 0, 99), 1250, created_ms)
    topic = metrics.topics["orders"]
    check_fields(topic, appends=1, records=3, received_bytes=99, ahead=ahead)
    assert topic.append_latency_ms.count == (latency_ms is not None)
    assert topic.append_latency_ms.total == (latency_ms or 0)


def test_repetitions_and_nothing_are_not_counted() -> None:
    metrics = Metrics()
    metrics.appended("orders", append_info_fast(5, 7, 1000, -1, 0, 99)._replace(is_duplicate=True), 1250)
    metrics.appended("orders", append_info_fast(-1, -1, -1, -1, 0, 0), 1250)
    assert metrics.topics == {}


def test_a_snapshot_stays_as_it_is() -> None:
    metrics = Metrics()
    api = metrics.api(0, "Produce")
    api.microseconds.record(5)
    metrics.fetched("orders", 10)
    metrics.counters.connections_open = 1
    before = metrics.snapshot()
    api.microseconds.record(6)
    metrics.fetched("orders", 10)
    metrics.counters.connections_open = 2
    assert (before.apis[0].microseconds.count, before.topics["orders"].sent_bytes, before.counters.connections_open) == (1, 10, 1)
    assert metrics.api(0, "Produce") is api


def test_a_deleted_topic_is_forgotten() -> None:
    batch = bytes(build_batch_v2([Record(0, 1373450400000, CREATE_TIME, None, b"value")]))
    with Broker() as broker, RawClient(("127.0.0.1", broker.port)) as client:
        broker.call(lambda running: running.node.manager.create_topic("orders", 1))
        client.ask(
            ProduceRequest(None, 1, 1000, [TopicProduceData("orders", partition_data=[PartitionProduceData(0, batch)])]), 8
        )

        def scrape() -> Snapshot:
            node = broker.call(lambda running: running.node)
            return snapshot(node, lambda work: broker.call(lambda running: work()))

        registry = CollectorRegistry()
        registry.register(BrokerCollector(scrape))
        assert registry.get_sample_value("tidelog_topic_records_total", {"topic": "orders"}) == 1
        assert registry.get_sample_value("tidelog_log_bytes", {"topic": "orders"}) == len(batch)
        client.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 3)
        assert registry.get_sample_value("tidelog_topic_records_total", {"topic": "orders"}) is None
        assert registry.get_sample_value("tidelog_requests_total", {"api": "Produce"}) == 1
