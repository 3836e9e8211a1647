"""A broker's counters: plain numbers that are cheap to update at every request. `prometheus` exports them.

| | counted by |
|---|---|
| requests, their durations, errors, by API | `dispatcher` |
| connections, bytes received and sent | `connection` |
| records, bytes and latencies by topic | Produce and Fetch |
| batches that were decompressed, recompressed, converted up or down | Produce and Fetch |

A latency histogram has a bucket for each power of two, so that recording a value needs only its bit length and an addition.
Bucket n holds values above 2^(n-1) and up to 2^n, bucket 0 holds 0 and 1.

**Append latency** is KIP-32's metric: the time of an append minus the CreateTime of its newest record, once per append and
partition. It shows the age of arriving data without reading each record. In LogAppendTime topics the newest CreateTime comes from
the batch header, and only format v2 is counted. Records without a timestamp and duplicates are not counted. If a producer's clock
is ahead, the value is 0, and `ahead` is incremented.

Use only on the event loop's thread; `Metrics.snapshot` makes a copy for other threads.
"""

from __future__ import annotations

from tidelog.storage.partition.append.append_info import AppendInfo

LATENCY_BUCKETS = 48
"""The number of buckets: 2^47 ms are 4,460 years, and 2^47 µs are four and a half years."""
_LAST_BUCKET = LATENCY_BUCKETS - 1


class Histogram:
    """A histogram with a bucket for each power of two (see the module's docstring). The unit is the caller's."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * LATENCY_BUCKETS
        self.total = 0

    def record(self, value: int) -> None:
        """Count a value, 0 or more."""
        bucket = (value - 1).bit_length() if value else 0
        self.counts[bucket if bucket < _LAST_BUCKET else _LAST_BUCKET] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def at_most(self, exponent: int) -> int:
        """Return the number of recorded values that were at most 2^`exponent`."""
        return sum(self.counts[: exponent + 1])

    def copy(self) -> Histogram:
        new = Histogram()
        new.counts = self.counts[:]
        new.total = self.total
        return new


class ApiMetrics:
    """The counters of one API. `microseconds` is the time from the arrival of the complete request to its response, including
    the wait of a delayed fetch.
    """

    __slots__ = ("closed", "microseconds", "name", "waited")

    def __init__(self, name: str) -> None:
        self.name = name
        self.microseconds = Histogram()
        self.waited = 0
        """Requests that were not answered at once."""
        self.closed = 0
        """Requests that closed their connection, because they were malformed or caused an unexpected error."""

    def copy(self) -> ApiMetrics:
        new = ApiMetrics(self.name)
        new.microseconds, new.waited, new.closed = self.microseconds.copy(), self.waited, self.closed
        return new


class TopicMetrics:
    """The counters of one topic. The module's docstring defines `append_latency_ms`."""

    __slots__ = ("ahead", "append_latency_ms", "appends", "received_bytes", "records", "sent_bytes")

    def __init__(self) -> None:
        self.appends = 0
        self.records = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.append_latency_ms = Histogram()
        self.ahead = 0

    def copy(self) -> TopicMetrics:
        new = TopicMetrics()
        new.appends, new.records = self.appends, self.records
        new.received_bytes, new.sent_bytes = self.received_bytes, self.sent_bytes
        new.append_latency_ms, new.ahead = self.append_latency_ms.copy(), self.ahead
        return new


class Counters:
    """The counters of the whole broker. `connection` updates the counters of connections and bytes."""

    __slots__ = (
        "connections_accepted",
        "connections_idle_closed",
        "connections_open",
        "connections_refused",
        "connections_stalled_closed",
        "decompressed_batches",
        "down_converted_batches",
        "group_rebalances",
        "group_sessions_ended",
        "malformed_requests",
        "partitions_came_back",
        "partitions_went_offline",
        "received_bytes",
        "recompressed_batches",
        "sent_bytes",
        "unsent_budget_bytes",
        "unsent_bytes",
        "up_converted_batches",
    )

    def __init__(self) -> None:
        self.connections_open = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        """Connections refused because of a limit."""
        self.connections_idle_closed = 0
        self.connections_stalled_closed = 0
        self.malformed_requests = 0
        self.partitions_went_offline = 0
        self.partitions_came_back = 0
        self.unsent_bytes = 0
        self.unsent_budget_bytes = 0
        """Set only in snapshots: the memory of unread responses in bytes, and its budget."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.decompressed_batches = 0
        self.recompressed_batches = 0
        self.up_converted_batches = 0
        self.down_converted_batches = 0
        self.group_rebalances = 0
        self.group_sessions_ended = 0
        """Group members whose sessions timed out."""

    def copy(self) -> Counters:
        new = Counters()
        for name in self.__slots__:
            setattr(new, name, getattr(self, name))
        return new


class Metrics:
    """The broker's counters. Callers increment `counters` directly."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.apis: dict[int, ApiMetrics] = {}
        self.topics: dict[str, TopicMetrics] = {}

    def api(self, key: int, name: str) -> ApiMetrics:
        """Return an API's counters. The caller may keep and increment them."""
        found = self.apis.get(key)
        if found is None:
            found = self.apis[key] = ApiMetrics(name)
        return found

    def appended(self, topic: str, info: AppendInfo, now_ms: int, created_ms: int = -1) -> None:
        """Count an append to one partition. `now_ms` is the clock's time at the append or shortly after.

        `created_ms` is the largest CreateTime that the producer sent, or -1 if there is none. If the log stores CreateTimes,
        the newest stored one is used instead.
        """
        first_offset, last_offset, max_timestamp, append_time, _, size_bytes, is_duplicate, _ = info
        if is_duplicate or not size_bytes:
            return
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicMetrics()
        found.appends += 1
        found.records += last_offset - first_offset + 1
        found.received_bytes += size_bytes
        if append_time < 0:
            created_ms = max_timestamp
        if created_ms >= 0:
            latency_ms = now_ms - created_ms
            if latency_ms < 0:
                latency_ms = 0
                found.ahead += 1
            found.append_latency_ms.record(latency_ms)

    def fetched(self, topic: str, size_bytes: int) -> None:
        """Count the record bytes in a fetch response for one partition."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicMetrics()
        found.sent_bytes += size_bytes

    def forget_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)

    def snapshot(self) -> Metrics:
        """Return a copy of the current counters."""
        new = Metrics()
        new.counters = self.counters.copy()
        new.apis = {key: api.copy() for key, api in self.apis.items()}
        new.topics = {name: topic.copy() for name, topic in self.topics.items()}
        return new
