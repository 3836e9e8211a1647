"""Collects a broker's metrics for Prometheus: the counters of `metrics` and the data folder's contents. `metrics_server` serves
them.

| name | labels | |
|---|---|---|
| `tidelog_requests_total` | `api` | answered requests |
| `tidelog_requests_waited_total` | `api` | ... of those, requests answered later |
| `tidelog_requests_closed_total` | `api` | requests that were not answered: their connection was closed |
| `tidelog_request_seconds` | `api` | histogram, from the complete request to its response, waiting included |
| `tidelog_connections` | | open now |
| `tidelog_connections_accepted_total`, `..._refused_total`, `..._idle_closed_total` | | |
| `tidelog_malformed_requests_total` | | |
| `tidelog_group_rebalances_total`, `tidelog_group_sessions_ended_total` | | generations; members whose session timed out |
| `tidelog_received_bytes_total`, `tidelog_sent_bytes_total` | | on the network |
| `tidelog_batches_total` | `work` | `decompressed`, `recompressed`, `up_converted`, `down_converted` |
| `tidelog_topic_appends_total`, `..._records_total`, `..._received_bytes_total`, `..._sent_bytes_total` | `topic` | |
| `tidelog_append_latency_seconds` | `topic` | histogram, append time minus CreateTime, see `metrics` |
| `tidelog_append_ahead_total` | `topic` | appends whose CreateTime was in the future |
| `tidelog_unsent_bytes`, `tidelog_unsent_budget_bytes` | | memory of responses that clients have not read, and its budget |
| `tidelog_partitions_went_offline_total`, `tidelog_partitions_came_back_total` | | after an I/O error; once its cause is gone |
| `tidelog_log_bytes`, `tidelog_segments`, `tidelog_partitions`, `tidelog_offline_partitions` | `topic` | in the data folder |
| `tidelog_uncleanable_partitions`, `tidelog_partitions_with_late_transactions` | `topic` | damaged; blocked for read_committed |
| `tidelog_replicas` | `role` | replicas on a cluster member: `leader`, `follower` |
| `tidelog_under_replicated_partitions` | | partitions led here that have replicas out of sync |
| `tidelog_under_min_isr_partitions` | | partitions led here with too few in-sync replicas for acks=all |
| `tidelog_failed_followers`, `tidelog_follower_max_lag_records` | | stopped until the next leader epoch; the largest lag |
| `tidelog_replicated_bytes_total` | | bytes of records fetched from leaders |
| `tidelog_group_members` | `group` | |
| `tidelog_group_lag_records` | `group`, `topic`, `partition` | offsets up to the last stable offset |
| `tidelog_group_lag_seconds` | the same | age of the group's next record, negative if its timestamp is in the future |
| `tidelog_group_time_to_end_seconds` | the same | time to catch up at the rates of the last ten minutes' scrapes; +Inf: never |
| `tidelog_group_retention_seconds` | the same | until retention deletes that record; +Inf: never; absent if nothing is unread |
| `tidelog_group_partitions_left_out` | | groups' partitions beyond the limit, see `group_lags` |
| `tidelog_segments_rolled_by_time_total`, `tidelog_one_batch_segments_total` | `topic` | high if timestamps jump (KIP-32) |

For each scrape, the event loop's thread collects the numbers, a few partitions at a time, and then the groups' next records
(`group_lags`). The HTTP server's thread formats the text. `prometheus_client` is imported only when the metrics server starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.loop.metrics import Histogram, Metrics
from tidelog.broker.node import Node
from tidelog.broker.replicas.replica_numbers import ReplicaNumbers, counted
from tidelog.broker.server.scraped.group_lags import OnLoop, Scraped
from tidelog.groups.lag import CatchUp, PartitionLag, Precision
from tidelog.storage.steps import Steps
from tidelog.storage.topics.topic_statistics import TopicStatistics

_REQUEST_EXPONENTS = range(5, 25)  # 32 µs to 17 s
_LATENCY_EXPONENTS = range(0, 33, 2)  # 1 ms to 50 days


class Snapshot(NamedTuple):
    """A broker's numbers at one moment."""

    metrics: Metrics
    topics: Mapping[str, TopicStatistics]
    replicas: ReplicaNumbers | None = None
    """None for a standalone broker."""


def snapshot(node: Node, call: OnLoop) -> Snapshot:
    """Return the broker's current numbers. Call it on the scraping thread; `call` runs a step for some partitions on the event
    loop's thread.
    """
    metrics = call(partial(_metrics, node))
    steps = call(node.manager.statistics_in_steps)
    while True:
        topics = call(partial(_step, steps))
        if topics is not None:
            return Snapshot(metrics, topics, _replicas(node, call))


def _replicas(node: Node, call: OnLoop) -> ReplicaNumbers | None:
    if node.replicas is None or node.fetchers is None:
        return None
    found, steps = ReplicaNumbers(), counted(node.replicas.partitions, node.fetchers)
    while (numbers := call(partial(next, steps, None))) is not None:
        found = numbers
    return found


def _step(steps: Steps[Mapping[str, TopicStatistics]]) -> Mapping[str, TopicStatistics] | None:
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return None


def _metrics(node: Node) -> Metrics:
    metrics, offline = node.metrics.snapshot(), node.manager.offline
    metrics.counters.partitions_went_offline, metrics.counters.partitions_came_back = offline.went_offline, offline.came_back
    metrics.counters.unsent_bytes, metrics.counters.unsent_budget_bytes = node.unsent.used_bytes, node.unsent.max_bytes
    return metrics


class BrokerCollector(Collector):
    """Takes a snapshot at each scrape, with the groups' figures if available. Runs on the scraping thread."""

    def __init__(self, ask: Callable[[], Snapshot], ask_groups: Callable[[], Scraped] | None = None) -> None:
        self._ask = ask
        self._ask_groups = ask_groups

    def collect(self) -> Iterable[Metric]:
        """Return all metrics in the module's table."""
        metrics, topics, replicas = self._ask()
        yield from _of_requests(metrics)
        yield from _of_connections(metrics)
        yield from _of_topics(metrics)
        yield from _of_folder(topics)
        if replicas is not None:
            yield from _of_replicas(replicas)
        if self._ask_groups is not None:
            yield from _of_groups(self._ask_groups())

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that no metrics are collected before the first scrape."""
        return ()


def _of_requests(metrics: Metrics) -> Iterable[Metric]:
    answered = CounterMetricFamily("tidelog_requests", "Requests that were answered.", labels=["api"])
    waited = CounterMetricFamily("tidelog_requests_waited", "Requests that were not answered at once.", labels=["api"])
    closed = CounterMetricFamily("tidelog_requests_closed", "Requests that ended their connection.", labels=["api"])
    seconds = HistogramMetricFamily("tidelog_request_seconds", "Time from the complete request to its response.", labels=["api"])
    for _, api in sorted(metrics.apis.items()):
        answered.add_metric([api.name], api.microseconds.count)
        waited.add_metric([api.name], api.waited)
        closed.add_metric([api.name], api.closed)
        _add(seconds, api.name, api.microseconds, _REQUEST_EXPONENTS, 1e-6)
    return answered, waited, closed, seconds


def _of_connections(metrics: Metrics) -> Iterable[Metric]:
    counters = metrics.counters
    yield GaugeMetricFamily("tidelog_connections", "Connections that are open.", value=counters.connections_open)
    yield GaugeMetricFamily("tidelog_unsent_bytes", "Bytes of responses that clients have not read.", value=counters.unsent_bytes)
    budget = counters.unsent_budget_bytes
    yield GaugeMetricFamily(
        "tidelog_unsent_budget_bytes", "Fetches are cut short once unread responses take this many bytes.", value=budget
    )
    for name, text, value in (
        ("connections_accepted", "Connections that were opened.", counters.connections_accepted),
        ("connections_refused", "Connections refused because of a limit.", counters.connections_refused),
        ("connections_idle_closed", "Connections closed because they were idle.", counters.connections_idle_closed),
        (
            "connections_stalled_closed",
            "Connections that did not read their responses, or stopped sending a large request.",
            counters.connections_stalled_closed,
        ),
        ("malformed_requests", "Requests that break the protocol.", counters.malformed_requests),
        ("partitions_went_offline", "Partitions that an I/O error took offline.", counters.partitions_went_offline),
        ("partitions_came_back", "Partitions that came back by themselves.", counters.partitions_came_back),
        ("group_rebalances", "Generations of groups.", counters.group_rebalances),
        ("group_sessions_ended", "Members of groups whose session timed out.", counters.group_sessions_ended),
        ("received_bytes", "Bytes received.", counters.received_bytes),
        ("sent_bytes", "Bytes sent.", counters.sent_bytes),
    ):
        yield CounterMetricFamily(f"tidelog_{name}", text, value=value)
    batches = CounterMetricFamily(
        "tidelog_batches", "Batches that were decompressed, recompressed or converted.", labels=["work"]
    )
    for work in ("decompressed", "recompressed", "up_converted", "down_converted"):
        batches.add_metric([work], getattr(counters, f"{work}_batches"))
    yield batches


def _of_topics(metrics: Metrics) -> Iterable[Metric]:
    families: list[tuple[Any, str]] = [
        (CounterMetricFamily(f"tidelog_topic_{name}", text, labels=["topic"]), name)
        for name, text in (
            ("appends", "Appends to a partition."),
            ("records", "Records that were appended."),
            ("received_bytes", "Bytes of records that were appended."),
            ("sent_bytes", "Bytes of records that were fetched."),
        )
    ]
    ahead = CounterMetricFamily("tidelog_append_ahead", "Appends whose CreateTime lay in the future.", labels=["topic"])
    latency = HistogramMetricFamily(
        "tidelog_append_latency_seconds", "Append time minus the newest record's CreateTime.", labels=["topic"]
    )
    for name, topic in sorted(metrics.topics.items()):
        for family, attribute in families:
            family.add_metric([name], getattr(topic, attribute))
        if topic.append_latency_ms.count:
            ahead.add_metric([name], topic.ahead)
            _add(latency, name, topic.append_latency_ms, _LATENCY_EXPONENTS, 1e-3)
    return *(family for family, _ in families), ahead, latency


def _of_folder(topics: Mapping[str, TopicStatistics]) -> Iterable[Metric]:
    gauges = [
        (GaugeMetricFamily(f"tidelog_{name}", text, labels=["topic"]), attribute)
        for name, attribute, text in (
            ("log_bytes", "size_bytes", "Bytes of .log files."),
            ("segments", "segments", "Segments."),
            ("partitions", "partitions", "Partitions."),
            ("uncleanable_partitions", "uncleanable_partitions", "Damaged partitions, which are no longer compacted."),
            (
                "partitions_with_late_transactions",
                "late_transactions",
                "Partitions with a transaction open for longer than the maximum timeout.",
            ),
        )
    ]
    offline = GaugeMetricFamily("tidelog_offline_partitions", "Partitions that cannot be written.", labels=["topic"])
    rolled = CounterMetricFamily("tidelog_segments_rolled_by_time", "Segments rolled by segment.ms.", labels=["topic"])
    short = CounterMetricFamily("tidelog_one_batch_segments", "Segments rolled after a single batch.", labels=["topic"])
    for name, topic in topics.items():
        for gauge, attribute in gauges:
            gauge.add_metric([name], getattr(topic, attribute))
        offline.add_metric([name], len(topic.offline_partitions))
        rolled.add_metric([name], topic.rolled_by_time)
        short.add_metric([name], topic.one_batch_segments)
    return *(gauge for gauge, _ in gauges), offline, rolled, short


def _of_replicas(numbers: ReplicaNumbers) -> Iterable[Metric]:
    roles = GaugeMetricFamily("tidelog_replicas", "Leader and follower replicas.", labels=["role"])
    roles.add_metric(["leader"], numbers.led)
    roles.add_metric(["follower"], numbers.followed)
    yield roles
    for name, text, value in (
        ("under_replicated_partitions", "Partitions led here with replicas out of sync.", numbers.under_replicated),
        ("under_min_isr_partitions", "Partitions led here that refuse acks=all.", numbers.under_min_isr),
        ("failed_followers", "Partitions that are not followed until their next leader epoch.", numbers.failed),
        ("follower_max_lag_records", "Lag of the follower furthest behind its leader, in offsets.", numbers.max_lag),
    ):
        yield GaugeMetricFamily(f"tidelog_{name}", text, value=value)
    yield CounterMetricFamily("tidelog_replicated_bytes", "Bytes of records fetched from leaders.", value=numbers.copied_bytes)


def _of_groups(scraped: Scraped) -> Iterable[Metric]:
    members = GaugeMetricFamily("tidelog_group_members", "Members of a group.", labels=["group"])
    for group, count in sorted(scraped.members.items()):
        members.add_metric([group], count)
    labels = ["group", "topic", "partition"]
    families: list[tuple[GaugeMetricFamily, Callable[[PartitionLag], float | None]]] = [
        (GaugeMetricFamily(f"tidelog_group_{name}", text, labels=labels), value)
        for name, text, value in (
            ("lag_records", "Offsets from the committed one to the last stable offset.", lambda one: one.lag),
            ("lag_seconds", "Age of the next record for the group.", _lag_seconds),
            ("time_to_end_seconds", "Time to the end of the log at the group's rate and the topic's.", _time_to_end_seconds),
            ("retention_seconds", "Time until retention deletes unread records.", _retention_seconds),
        )
    ]
    for group, one in sorted(scraped.lags, key=lambda found: (found[0], found[1].key)):
        for family, value_of in families:
            value = value_of(one)
            if value is not None:
                family.add_metric([group, one.topic, str(one.partition)], value)
    left_out = GaugeMetricFamily(
        "tidelog_group_partitions_left_out", "Groups' partitions left out because of the limit.", value=scraped.left_out
    )
    return members, *(family for family, _ in families), left_out


def _lag_seconds(one: PartitionLag) -> float | None:
    return None if one.lag_ms is None else one.lag_ms / 1000


def _time_to_end_seconds(one: PartitionLag) -> float | None:
    found = one.time_to_end
    if found.catch_up is CatchUp.NEVER:
        return float("inf")
    return None if found.time_ms is None else found.time_ms / 1000


def _retention_seconds(one: PartitionLag) -> float | None:
    if one.retention.precision is Precision.NEVER:
        return float("inf")
    return None if one.retention.goes_ms is None else (one.retention.goes_ms - one.now_ms) / 1000


def _add(family: HistogramMetricFamily, label: str, histogram: Histogram, exponents: range, unit: float) -> None:
    buckets = [(repr(round((1 << exponent) * unit, 9)), histogram.at_most(exponent)) for exponent in exponents]
    family.add_metric([label], [*buckets, ("+Inf", histogram.count)], sum_value=histogram.total * unit)
