"""Generates messages for a log: when they are created, which timestamp they carry, when they arrive. Seeded, so repeatable.

| time, epoch ms | |
|---|---|
| `made_ms` | when the message was really created |
| `create_ms` | the producer's clock at that moment: CreateTime |
| `arrival_ms` | when the broker really appends it: LogAppendTime without the skew of the broker's clock |

KIP-32 discusses three latency patterns and wrong clocks: `SMALL_LATENCY`, `LARGE_LATENCY`, `MIXED_LATENCY`, `WrongClock`.
A value starts with the message's number and its `create_ms`, both int64, so that a reader of the log can identify each message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.records.column_batches import BinaryLayout, ColumnBatches
from tidelog.records.compression import Codec
from tidelog.storage.partition.append.append_info import AppendInfo
from tidelog.storage.partition.partition_log import PartitionLog

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

EPOCH_MS = 1_700_006_400_000
"""The start of the generated logs: 2023-11-15, midnight."""

HEADER_BYTES = 16
"""The message's number and its `create_ms`, at the start of each value."""

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Latency:
    """The latency of messages: `smallest_ms` plus an exponential part with the mean `mean_extra_ms`. Some messages are later
    still.
    """

    name: str
    smallest_ms: int = 5
    mean_extra_ms: float = 20.0
    late_share: float = 0.0
    late_ms: int = 0
    """The additional latency of the late messages."""


SMALL_LATENCY = Latency("pattern 1: small latency")
LARGE_LATENCY = Latency("pattern 2: similar large latency", smallest_ms=6 * HOUR_MS, mean_extra_ms=MINUTE_MS)
MIXED_LATENCY = Latency("pattern 3: large latency difference", late_share=0.5, late_ms=DAY_MS)


@dataclass(frozen=True)
class WrongClock:
    """A share of the messages whose producer's clock is wrong by `offset_ms`, ahead if positive."""

    share: float
    offset_ms: int


@dataclass(frozen=True)
class Workload:
    """The parameters of a workload. `interval_ms` is the mean time between two messages (exponential)."""

    name: str
    seed: int
    records: int
    interval_ms: float
    latency: Latency = SMALL_LATENCY
    wrong_clock: WrongClock | None = None
    value_bytes: int = 100
    start_ms: int = EPOCH_MS

    def __post_init__(self) -> None:
        if self.records < 1:
            raise InvalidArgumentError("a workload has at least one record", found=self.records)
        if self.value_bytes < HEADER_BYTES:
            raise InvalidArgumentError("a value is too small for its header", found=self.value_bytes, expected=HEADER_BYTES)

    def describe(self) -> str:
        """Return all parameters in one line, for the report."""
        clock = (
            ""
            if self.wrong_clock is None
            else (f"; {self.wrong_clock.share:.1%} of the clocks wrong by {self.wrong_clock.offset_ms:,} ms")
        )
        latency = self.latency
        late = f", {latency.late_share:.0%} of them {latency.late_ms:,} ms later" if latency.late_share else ""
        return (
            f"{self.name}: seed {self.seed}, {self.records:,} messages of {self.value_bytes} bytes, "
            f"one in {self.interval_ms:g} ms; "
            f"latency {latency.smallest_ms:,} ms + exponential of mean {latency.mean_extra_ms:g} ms{late}{clock}"
        )


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages in order of arrival, as int64 columns of equal length."""

    numbers: Int64s
    """The message's number in order of creation, from 0 on."""
    made_ms: Int64s
    create_ms: Int64s
    arrival_ms: Int64s
    value_bytes: int

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, first: int, last: int) -> Messages:
        """Return some of the messages, in the same order."""
        some = slice(first, last)
        return Messages(self.numbers[some], self.made_ms[some], self.create_ms[some], self.arrival_ms[some], self.value_bytes)


def generate(workload: Workload) -> Messages:
    """Return a workload's messages as they arrive at their first broker."""
    random = np.random.default_rng(workload.seed)
    gaps = random.exponential(workload.interval_ms, workload.records)
    made = workload.start_ms + np.floor(np.cumsum(gaps)).astype(np.int64)
    create = made.copy()
    if workload.wrong_clock is not None:
        wrong = random.random(workload.records) < workload.wrong_clock.share
        create[wrong] += workload.wrong_clock.offset_ms
    numbers = np.arange(workload.records, dtype=np.int64)
    return _arriving(numbers, made, create, made + _latencies(workload.latency, workload.records, random), workload.value_bytes)


def mirrored(messages: Messages, latency: Latency, seed: int) -> Messages:
    """Return the same messages as they arrive at a second broker, each copied from the first one with another latency."""
    random = np.random.default_rng(seed)
    arrival = messages.arrival_ms + _latencies(latency, len(messages), random)
    return _arriving(messages.numbers, messages.made_ms, messages.create_ms, arrival, messages.value_bytes)


def _latencies(latency: Latency, count: int, random: np.random.Generator) -> Int64s:
    drawn = latency.smallest_ms + random.exponential(latency.mean_extra_ms, count)
    if latency.late_share:
        drawn[random.random(count) < latency.late_share] += latency.late_ms
    return np.floor(drawn).astype(np.int64)


def _arriving(numbers: Int64s, made: Int64s, create: Int64s, arrival: Int64s, value_bytes: int) -> Messages:
    order = np.argsort(arrival, kind="stable")
    return Messages(numbers[order], made[order], create[order], arrival[order], value_bytes)


def append_messages(
    log: PartitionLog,
    clock: ManualClock,
    messages: Messages,
    *,
    clock_skew_ms: int = 0,
    batch_records: int = 10,
    codec: Codec = Codec.NONE,
) -> Iterator[AppendInfo]:
    """Append the messages in batches, each when its last message arrives; yield the append result of each.

    The broker's clock is set to that time plus `clock_skew_ms`, even backward. Consumers see the batch at once (there are no
    followers). A caller that needs no results iterates with `for _ in`.
    """
    for first in range(0, len(messages), batch_records):
        some = messages.part(first, first + batch_records)
        clock.advance(int(some.arrival_ms[-1]) + clock_skew_ms - clock.now_ms())
        info = log.append_as_leader(build_batch(some, codec), leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)
        yield info


def build_batch(messages: Messages, codec: Codec = Codec.NONE) -> bytearray:
    """Return the messages as one v2 batch with base offset 0 and their CreateTimes."""
    count = len(messages)
    values = np.zeros((count, messages.value_bytes), np.uint8)
    header = np.stack([messages.numbers, messages.create_ms], axis=1).astype(">i8")
    values[:, :HEADER_BYTES] = header.view(np.uint8).reshape(count, HEADER_BYTES)
    if messages.value_bytes > HEADER_BYTES:
        # The rest of the value differs between messages, and compresses like text.
        tail = np.arange(messages.value_bytes - HEADER_BYTES, dtype=np.int64)
        values[:, HEADER_BYTES:] = 97 + (messages.numbers[:, None] * 31 + tail * (messages.numbers[:, None] % 7 + 1)) % 26
    offsets = np.arange(0, (count + 1) * messages.value_bytes, messages.value_bytes, dtype=np.int32)
    keys = BinaryLayout(np.arange(0, (count + 1) * 8, 8, dtype=np.int32), np.ascontiguousarray(header[:, :1]), None, 0, count)
    layout = BinaryLayout(offsets, values, None, 0, count)
    timestamps = np.ascontiguousarray(messages.create_ms)
    batches = ColumnBatches(timestamps.data, keys, layout, codec=codec)
    return batches.build(np.arange(count, dtype=np.int32).data, 0, count)
