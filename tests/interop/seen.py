"""The content of a topic with one partition according to its engine and according to a broker: both must be equal.

| | from the engine | from a broker |
|---|---|---|
| records | batch by batch from `PartitionLog.read`; a consumer's rule for aborted transactions | a consumer, which checks CRCs |
| offsets | `fetch_offset_for_timestamp` | ListOffsets, either isolation |
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import Row, consume_all, list_offsets
from tidelog.errors import TidelogError, kafka_error_code
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import iter_records
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation

UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"
ISOLATIONS = {UNCOMMITTED: FetchIsolation.HIGH_WATERMARK, COMMITTED: FetchIsolation.TXN_COMMITTED}
TARGETS = 8

Answer = tuple[int, int] | int
"""Offset and timestamp, (-1, -1) for none; Kafka's error code for an error."""
NONE: Answer = (-1, -1)


class Seen(NamedTuple):
    """By isolation: the rows; by (isolation, time or special value): the answers."""

    rows: dict[str, list[Row]]
    answers: dict[tuple[str, int], Answer]

    @property
    def targets(self) -> list[int]:
        return sorted({target for _, target in self.answers})

    @property
    def end(self) -> int:
        """Where the log ends, control records and all."""
        answer = self.answers[UNCOMMITTED, LATEST]
        assert isinstance(answer, tuple)
        return answer[0]


def differences(ours: Mapping[str, Seen], theirs: Mapping[str, Seen]) -> list[str]:
    """Return a line for each difference between two observations of the same topics."""
    found = [f"{topic}: on one side only" for topic in ours.keys() ^ theirs.keys()]
    for topic in sorted(ours.keys() & theirs.keys()):
        one, other = ours[topic], theirs[topic]
        for isolation in ISOLATIONS:
            rows = one.rows[isolation], other.rows[isolation]
            found += [f"{topic}: {isolation}: {_first_difference(*rows)}"] if rows[0] != rows[1] else []
        for question in sorted(one.answers.keys() | other.answers.keys()):
            answers = one.answers.get(question), other.answers.get(question)
            if answers[0] != answers[1] and not _is_on_purpose(topic, one, question[1], answers):
                found.append(f"{topic}: {question}: {answers[0]} and {answers[1]}")
    return found


def _is_on_purpose(topic: str, seen: Seen, target: int, answers: tuple[Answer | None, Answer | None]) -> bool:
    """Whether the log start lies inside a segment, one of them is right, and the other is a broker.

    He looks for a time no further than that segment; and his latest record may be one that is deleted.
    """
    rows = seen.rows[UNCOMMITTED]
    if not topic.endswith("deleted-prefix") or not rows or target in (EARLIEST, LATEST):
        return False
    wanted = max(row.timestamp for row in rows) if target == MAX_TIMESTAMP else target
    right = next(((row.offset, row.timestamp) for row in rows if row.timestamp >= wanted), NONE)
    return right in answers and (target == MAX_TIMESTAMP or NONE in answers)


def _first_difference(ours: list[Row], theirs: list[Row]) -> str:
    both = zip(ours, theirs, strict=False)
    place = next((n for n, (one, other) in enumerate(both) if one != other), min(len(ours), len(theirs)))
    rows = [rows[place] if place < len(rows) else None for rows in (ours, theirs)]
    return f"{len(ours)} rows and {len(theirs)}, row {place}: {rows[0]} and {rows[1]}"


def see(log: PartitionLog, targets: Collection[int] = (), *, without: Collection[int] = ()) -> Seen:
    """Look at a log; unless `targets` are given, times to ask for are chosen from its records, `without` some."""
    rows = {isolation: list(_rows(log, fetch)) for isolation, fetch in ISOLATIONS.items()}
    answers = {}
    for isolation, fetch in ISOLATIONS.items():
        for target in targets or (one for one in choose_targets(rows[UNCOMMITTED]) if one not in without):
            try:
                found = log.fetch_offset_for_timestamp(target, fetch)
            except TidelogError as error:
                answers[isolation, target] = kafka_error_code(type(error))[0]
            else:
                answers[isolation, target] = NONE if found is None else (found.offset, found.timestamp)
    return Seen(rows, answers)


def _rows(log: PartitionLog, isolation: FetchIsolation) -> Iterator[Row]:
    """Read like a consumer. Each read reports the aborted transactions with records in it."""
    offset, end = log.log_start_offset, log.watermarks.end_of(isolation).message_offset
    while offset < end:
        fetched = log.read(offset, 3000, isolation)
        headers = list(iter_headers(fetched.data))
        assert headers, f"{log.directory}: nothing to read at {offset}, before the end at {end}"
        aborted = sorted(fetched.aborted_transactions or (), key=lambda one: one.first_offset, reverse=True)
        left_out: set[int] = set()
        for header in headers:
            while aborted and aborted[-1].first_offset <= header.last_offset:
                left_out.add(aborted.pop().producer_id)
            yield from _rows_of(header, fetched.data, offset, left_out)
        offset = headers[-1].next_offset


def _rows_of(header: BatchHeader, data: memoryview, start: int, left_out: set[int]) -> Iterator[Row]:
    records = iter_records(header, data[header.position : header.end_position])
    if header.is_control:
        if parse_control_type(next(records).key) is ControlType.ABORT:
            left_out.discard(header.producer_id)
    elif not (header.is_transactional and header.producer_id in left_out):
        for record in records:
            if record.offset >= start:
                yield Row(*record._replace(timestamp_type=record.timestamp_type + 1))


def choose_targets(rows: list[Row]) -> list[int]:
    """Special values, times before, among and after all."""
    times = sorted({row.timestamp for row in rows if row.timestamp >= 0})
    chosen = random.Random(len(times)).sample(times, min(TARGETS, len(times))) + times[:1] + times[-1:]
    return [EARLIEST, LATEST, MAX_TIMESTAMP, 0, *sorted({max(0, time + delta) for time in chosen for delta in (0, 1)})]


def serve(broker: Kafka391 | Kafka241, asked: Mapping[str, Collection[int]]) -> dict[str, Seen]:
    """Look at topics as clients of a broker, asking for these times."""
    rows = {isolation: consume_all(broker.bootstrap, asked, isolation=isolation) for isolation in ISOLATIONS}
    answers: dict[str, dict[tuple[str, int], Answer]] = {topic: {} for topic in asked}
    levels = {UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED, COMMITTED: IsolationLevel.READ_COMMITTED}
    waiting = {topic: list(targets) for topic, targets in asked.items()}
    while any(waiting.values()):
        turn = {topic: targets.pop() for topic, targets in waiting.items() if targets}
        for isolation, level in levels.items():
            specs = {topic: _spec(target) for topic, target in turn.items()}
            for topic, answer in list_offsets(broker.admin, specs, level).items():
                answers[topic][isolation, turn[topic]] = answer
    return {topic: Seen({isolation: rows[isolation][topic] for isolation in ISOLATIONS}, answers[topic]) for topic in asked}


def _spec(target: int) -> OffsetSpec:
    special = {EARLIEST: OffsetSpec.earliest, LATEST: OffsetSpec.latest, MAX_TIMESTAMP: OffsetSpec.max_timestamp}
    return special[target]() if target in special else OffsetSpec.for_timestamp(target)
