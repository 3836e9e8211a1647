"""Two clusters with a mirror between them: which timestamps a consumer sees, and what it can compute from them.

A run produces the messages to cluster 1, copies them to cluster 2 like MirrorMaker (which brokers see as a normal consumer and
producer), and reads both. `Seen` is what a consumer sees of a message. Options run on `broker.Broker` with their
own formats. "Accepted" runs on the storage engine, with topics of both types:

| subject | the mirror forwards |
|---|---|
| accepted: CreateTime | the record's timestamp |
| accepted: LogAppendTime | the record's timestamp, which is cluster 1's append time: Kafka's consumer has no other |
| accepted: LogAppendTime, create time handed on | the producer's time, which v2's deltas keep and Tidelog's `create_time` gives |
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from studies.options.broker import Broker, IndexCopy
from studies.options.formats import OPTIONS, Message, Option, encode_set
from studies.options.replicas import FOLLOWER_LAG_MS, FOLLOWER_SKEW_MS
from studies.workload import DAY_MS, HEADER_BYTES, Int64s, Messages, build_batch
from tidelog.clock import ManualClock
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME as CREATE_TIME_ID
from tidelog.records.batch import LOG_APPEND_TIME as LOG_APPEND_TIME_ID
from tidelog.records.batch import iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.columns import Columns
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

PAYLOAD_TIME_BYTES = 8
"""CreateTime (int64), which option 2's applications put in front of their values."""

HANDED_ON = "accepted: LogAppendTime, create time handed on"
ACCEPTED: Mapping[str, str] = {
    "accepted: CreateTime": CREATE_TIME,
    "accepted: LogAppendTime": LOG_APPEND_TIME,
    HANDED_ON: LOG_APPEND_TIME,
}
MODELS: Mapping[str, Option] = {option.value: option for option in OPTIONS}
PAYLOAD = "option 2, CreateTime in the payload"
SUBJECTS = (*MODELS, PAYLOAD, *ACCEPTED)

REQUEST_MESSAGES = 1
"""Messages per request. A request waits for its last message, so more would add latency that is not the pipeline's."""


class Seen(NamedTuple):
    """What a consumer of one cluster sees, by message number. Times are in epoch ms, -1 for none."""

    create_ms: Int64s
    append_ms: Int64s
    appended_ms: Int64s
    """The truth: when the cluster's leader appended the message."""
    indexed_ms: Int64s
    """The broker's knowledge from option 3's time index: the last entry at or before the message; -1 for none."""
    incoming_create_ms: Int64s
    """The CreateTime that the request carried."""
    incoming_append_ms: Int64s
    """The LogAppendTime that the request carried: -1 from an application, the first cluster's from a mirror."""
    size_bytes: int
    """The offset in the cluster's log."""


class Pipeline(NamedTuple):
    """Both clusters."""

    source: Seen
    target: Seen
    replicas_differ: int
    """The number of messages on both clusters whose times differ between leader and follower, as consumers see them."""


class Engines:
    """A leader and a follower of the storage engine, reused for one topic after the other."""

    def __init__(self, work_dir: Path, start_ms: int) -> None:
        self._stack = ExitStack()
        self.clock = ManualClock(start_ms)
        self._managers = (
            self._stack.enter_context(LogManager(work_dir / "leader", self.clock)),
            self._stack.enter_context(LogManager(work_dir / "follower", ManualClock(start_ms + FOLLOWER_SKEW_MS))),
        )
        self._topics = 0

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def new_topic(self, timestamp_type: str) -> tuple[PartitionLog, PartitionLog]:
        """Return the logs of a new topic, on the leader and on the follower."""
        name = f"t{self._topics}"
        self._topics += 1
        for manager in self._managers:
            manager.create_topic(name, 1, {"message.timestamp.type": timestamp_type})
        leader, follower = (manager.log(name, 0) for manager in self._managers)
        return leader, follower


def run(subject: str, messages: Messages, copied: Messages, engines: Engines) -> Pipeline:
    """Send `messages` through cluster 1, and on to cluster 2, where they arrive at the times in `copied`."""
    if subject in MODELS or subject == PAYLOAD:
        option = MODELS.get(subject, Option.APPEND_TIME)
        in_payload = subject == PAYLOAD
        unset = np.full(len(messages), NO_TIMESTAMP, np.int64)
        source, differ = _through_model(option, messages, messages.create_ms, unset, in_payload)
        order = copied.numbers
        target, more = _through_model(option, copied, source.create_ms[order], source.append_ms[order], in_payload)
        return Pipeline(source, target, differ + more)
    source, differ = _through_engine(ACCEPTED[subject], messages, messages.create_ms, engines)
    shown = np.where(source.append_ms >= 0, source.append_ms, source.create_ms)
    handed_on = source.create_ms if subject == HANDED_ON else shown
    target, more = _through_engine(ACCEPTED[subject], copied, handed_on[copied.numbers], engines)
    if subject != HANDED_ON:
        # Kafka's consumer sees one time. The time in v2's deltas is used only for the subject that forwards it.
        source, target = _without_hidden(source), _without_hidden(target)
        if ACCEPTED[subject] == LOG_APPEND_TIME:
            # The mirror's requests carry cluster 1's append time if the format has a CreateTime.
            target = target._replace(incoming_append_ms=target.incoming_create_ms)
    return Pipeline(source, target, differ + more)


def _without_hidden(seen: Seen) -> Seen:
    return seen._replace(create_ms=np.where(seen.append_ms >= 0, NO_TIMESTAMP, seen.create_ms))


# --- the options


def _through_model(
    option: Option, messages: Messages, create_ms: Int64s, append_ms: Int64s, in_payload: bool
) -> tuple[Seen, int]:
    """Append the messages at their arrival, with requests that carry these times. Return what consumers see, and the differences.

    With `in_payload` applications put CreateTime into the value, after the message number, and read it from there.
    """
    start_ms = int(messages.arrival_ms[0])
    leader, follower = (
        Broker(option, segment_ms=DAY_MS, segment_bytes=1 << 30, now_ms=start_ms, copy=IndexCopy.FETCHED_LATE) for _ in range(2)
    )
    appended: list[int] = []
    rest = bytes(messages.value_bytes - 8)
    for first in range(0, len(messages), REQUEST_MESSAGES):
        some = slice(first, first + REQUEST_MESSAGES)
        rows = zip(messages.numbers[some].tolist(), create_ms[some].tolist(), append_ms[some].tolist(), strict=True)
        sent = []
        for i, (number, create, append) in enumerate(rows):
            payload_time = create.to_bytes(PAYLOAD_TIME_BYTES, "big") if in_payload else b""
            sent.append(Message(i, create, append, None, number.to_bytes(8, "big") + payload_time + rest))
        request = encode_set(option, sent)
        now_ms = int(messages.arrival_ms[some][-1])
        appended += [leader.append_as_leader(request, now_ms)] * len(messages.numbers[some])
        leader.replicate(follower, now_ms + FOLLOWER_LAG_MS + FOLLOWER_SKEW_MS)
    read = leader.read()
    differ = sum(one != other for one, other in zip(read, follower.read(), strict=True))
    values = [message.value or b"" for message in read]
    numbers = np.array([int.from_bytes(value[:8], "big") for value in values], np.int64)
    told = [int.from_bytes(value[8:16], "big") for value in values] if in_payload else [message.create_ms for message in read]
    entries = [entry for segment in leader.segments for entry in segment.entries]
    none = np.full(len(read), NO_TIMESTAMP, np.int64)
    indexed = none
    if entries:
        at = np.searchsorted([entry.offset for entry in entries], np.arange(len(read)), side="right") - 1
        indexed = np.array([entry.append_ms for entry in entries], np.int64)[at]
    return (
        Seen(
            by_number(numbers, told),
            by_number(numbers, [message.append_ms for message in read]),
            by_number(numbers, appended),
            by_number(numbers, indexed),
            by_number(messages.numbers, create_ms if option.has_create_time else none),
            by_number(messages.numbers, append_ms if option.has_append_time else none),
            sum(len(segment.data) for segment in leader.segments),
        ),
        differ,
    )


def by_number(numbers: Int64s, values: list[int] | Int64s) -> Int64s:
    out = np.empty(len(numbers), np.int64)
    out[numbers] = values
    return out


# --- what was accepted


def _through_engine(timestamp_type: str, messages: Messages, create_ms: Int64s, engines: Engines) -> tuple[Seen, int]:
    """Append the messages with these timestamps to the engine, on leader and follower, and read them back."""
    leader, follower = engines.new_topic(timestamp_type)
    clock = engines.clock
    values = _values(messages)
    appended = []
    for first in range(0, len(messages), REQUEST_MESSAGES):
        some = range(first, min(first + REQUEST_MESSAGES, len(messages)))
        records = [Record(i - first, int(create_ms[i]), CREATE_TIME_ID, None, values[i]) for i in some]
        clock.advance(int(messages.arrival_ms[some[-1]]) - clock.now_ms())
        leader.append_as_leader(build_batch_v2(records), leader_epoch=0)
        follower.append_as_follower(bytes(leader.read(follower.log_end_offset, 1 << 20).data))
        appended += [clock.now_ms()] * len(some)
    seen, copy = _read(leader), _read(follower)
    size_bytes = sum(segment.size_bytes for segment in leader.segments.values())
    none = np.full(len(messages), NO_TIMESTAMP, np.int64)
    differ = int(np.count_nonzero((seen[1] != copy[1]) | (seen[2] != copy[2])))
    numbers = seen[0]
    return (
        Seen(
            by_number(numbers, seen[1]),
            by_number(numbers, seen[2]),
            by_number(numbers, appended),
            none,
            by_number(messages.numbers, create_ms),
            none,
            size_bytes,
        ),
        differ,
    )


def _values(messages: Messages) -> list[bytes]:
    """Return the workload's values, which a mirror does not change."""
    columns = Columns(names=("value",))
    batch = build_batch(messages)
    for header in iter_headers(batch):
        columns.add(header, batch, header.position)
    buffers = columns.values()
    size = messages.value_bytes
    return [bytes(buffers.data[i * size : (i + 1) * size]) for i in range(len(messages))]


def _read(log: PartitionLog) -> tuple[Int64s, Int64s, Int64s]:
    """Return each record's number, CreateTime and LogAppendTime (-1 for none), in log order."""
    data = bytes(log.read(0, 1 << 30).data)
    columns = Columns(names=("timestamp", "timestamp_type", "create_time", "value"))
    for header in iter_headers(data):
        columns.add(header, data, header.position)
    values = columns.values()
    offsets = np.frombuffer(values.offsets, np.int32)[:-1]
    raw = np.frombuffer(values.data, np.uint8)
    numbers = raw[offsets[:, None] + np.arange(HEADER_BYTES // 2)].copy().view(">i8")[:, 0].astype(np.int64)
    shown = np.frombuffer(columns.timestamps().data, np.int64)
    create = np.frombuffer(columns.create_times().data, np.int64)
    by_append = np.frombuffer(columns.timestamp_types(), np.int8) == LOG_APPEND_TIME_ID
    return numbers, create, np.where(by_append, shown, NO_TIMESTAMP)
