"""A topic with one partition on its cluster, and the true facts about it.

Each message is appended on arrival in a separate batch. So its append time is its arrival by the broker's clock, and its offset
is its position in the order of arrival. The correct result of a search is therefore known without the log
(`Cluster.expected_start`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from studies.case import Measurement, Parameter
from studies.workload import EPOCH_MS, MINUTE_MS, Int64s, Latency, Messages, WrongClock, append_messages
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.sources.stream import scan
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
TYPES = (CREATE_TIME, LOG_APPEND_TIME)

TOPIC = "messages"

SKEW_MS = 5 * MINUTE_MS
"""The error of a wrong clock. It is also the largest skew that a user is assumed to know."""

WRONG_SHARE = 0.1
"""The share of producers with a wrong clock, in the cases with wrong producer clocks."""

LATENCY = Latency("first cluster", smallest_ms=20, mean_extra_ms=500, late_share=0.02, late_ms=2 * MINUTE_MS)
"""The latency on the way to a cluster: half a second, and occasionally two minutes."""

SECOND_LATENCY = Latency("second cluster", smallest_ms=40, mean_extra_ms=1000, late_share=0.02, late_ms=MINUTE_MS)

SEGMENT_BYTES = 256 * 1024
"""Small, so that a log has several segments."""

SEGMENT_MS = 3650 * 24 * 60 * MINUTE_MS
"""Segments roll by size only: another study covers rolling by time."""


@dataclass(frozen=True)
class Skew:
    """Which clocks are wrong."""

    name: str
    producers_ms: int = 0
    """How far ahead some producers' clocks are; negative: behind."""
    broker_ms: int = 0
    """The same for the broker; in the failover, for cluster 2's broker."""

    @property
    def wrong_clock(self) -> WrongClock | None:
        return WrongClock(WRONG_SHARE, self.producers_ms) if self.producers_ms else None


TRUE_CLOCKS = Skew("true clocks")
SKEWS = (
    TRUE_CLOCKS,
    Skew("producers ahead", producers_ms=SKEW_MS),
    Skew("producers behind", producers_ms=-SKEW_MS),
    Skew("broker ahead", broker_ms=SKEW_MS),
    Skew("broker behind", broker_ms=-SKEW_MS),
)


def skew_of(name: str) -> Skew:
    """Return the skew of that name. Raise InvalidArgumentError if there is none."""
    for skew in SKEWS:
        if skew.name == name:
            return skew
    raise InvalidArgumentError("no such skew", found=name, expected=", ".join(skew.name for skew in SKEWS))


class Cluster:
    """A topic with one partition, its timestamp type, and the messages appended so far."""

    def __init__(self, log: PartitionLog, clock: ManualClock, timestamp_type: str, broker_ms: int) -> None:
        self.log = log
        self.timestamp_type = timestamp_type
        self._clock = clock
        self._broker_ms = broker_ms
        empty = np.empty(0, np.int64)
        self.messages = Messages(empty, empty, empty, empty, 0)
        self.timestamps = empty
        """The expected timestamp of each record, by offset: computed here, not read from the log."""

    def append(self, messages: Messages, broker_ms: int | None = None) -> None:
        """Append messages in order of arrival. `broker_ms` is how far the broker's clock is ahead from now on."""
        if broker_ms is not None:
            self._broker_ms = broker_ms
        for _ in append_messages(self.log, self._clock, messages, clock_skew_ms=self._broker_ms, batch_records=1):
            pass
        times = messages.create_ms if self.timestamp_type == CREATE_TIME else messages.arrival_ms + self._broker_ms
        self.timestamps = np.concatenate([self.timestamps, times])
        if self.timestamp_type == LOG_APPEND_TIME:
            self.timestamps = np.maximum.accumulate(self.timestamps)  # Append times never decrease.
        self.messages = messages if len(self.messages) == 0 else _joined(self.messages, messages)

    def start_offset(self, timestamp: int) -> int:
        """Return the start offset of a consumer that searches for a time: the engine's result, or the log's end."""
        found = self.log.fetch_offset_by_timestamp(timestamp)
        return self.log.log_end_offset if found is None else found.offset

    def expected_start(self, timestamp: int) -> int:
        """Return the correct start offset, found by examining all messages."""
        late_enough = np.flatnonzero(self.timestamps >= timestamp)
        return int(late_enough[0]) if len(late_enough) else len(self.timestamps)


@contextmanager
def cluster(folder: Path, timestamp_type: str, broker_ms: int = 0, **properties: Parameter) -> Iterator[Cluster]:
    """Yield an empty topic in a new folder. Further topic properties have underscores instead of dots."""
    clock = ManualClock(EPOCH_MS)
    given: dict[str, Parameter] = {
        "message.timestamp.type": timestamp_type,
        "segment.bytes": SEGMENT_BYTES,
        "segment.ms": SEGMENT_MS,
        "retention.ms": -1,
    }
    given.update({name.replace("_", "."): value for name, value in properties.items()})
    with LogManager(folder, clock) as manager:
        manager.create_topic(TOPIC, 1, given)
        yield Cluster(manager.log(TOPIC, 0), clock, timestamp_type, broker_ms)


class Tally:
    """The numbers of one case: sums and maxima by subject and metric."""

    def __init__(self, part: str, case: str) -> None:
        self._part = part
        self._case = case
        self._values: dict[tuple[str, str], tuple[float, str]] = {}

    def add(self, subject: str, metric: str, value: float, unit: str = "messages") -> None:
        """Add to a sum."""
        before = self._values.get((subject, metric), (0.0, unit))[0]
        self._values[subject, metric] = (before + float(value), unit)

    def most(self, subject: str, metric: str, value: float, unit: str = "messages") -> None:
        """Keep the maximum."""
        before = self._values.get((subject, metric), (float(value), unit))[0]
        self._values[subject, metric] = (max(before, float(value)), unit)

    def measurements(self) -> list[Measurement]:
        """Return the numbers in the order in which they were first added."""
        return [
            Measurement(self._part, self._case, subject, metric, value, unit)
            for (subject, metric), (value, unit) in self._values.items()
        ]


def _joined(first: Messages, second: Messages) -> Messages:
    return Messages(
        np.concatenate([first.numbers, second.numbers]),
        np.concatenate([first.made_ms, second.made_ms]),
        np.concatenate([first.create_ms, second.create_ms]),
        np.concatenate([first.arrival_ms, second.arrival_ms]),
        second.value_bytes,
    )


def stored_times(folder: Path) -> tuple[Int64s, Int64s]:
    """Return the timestamps and CreateTimes (epoch ms) of the topic in a folder, by offset, read from the log.

    On a topic with LogAppendTime, the CreateTimes are those that format v2 keeps in its deltas.
    """
    table = scan(folder, TOPIC, columns=["timestamp", "create_time"]).read_all()
    timestamps, create_times = (
        np.asarray(column.cast(pa.int64()).to_numpy(), np.int64) for column in table.select(["timestamp", "create_time"]).columns
    )
    return timestamps, create_times
