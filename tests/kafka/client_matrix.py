"""Topics that real clients write and read, pairwise over what may matter, and what each must see then.

A case is a topic: `message.format.version`, `message.timestamp.type`, `compression.type`, and who writes it, with which codec,
with or without headers, idempotent or not. `cases` picks so many that every two choices that go together meet in one of them.
Every client then reads every topic. What they must see:

| stored format | timestamps | headers |
|---|---|---|
| v0 | none | none |
| v1 | CreateTime: the writer's, none of a writer of v0; LogAppendTime: one a batch, the broker's clock when it came | none |
| v2 | the same | the writer's, none of a writer of v1 |

Readers of v0 see no timestamps and no headers, readers of v1 no headers, whatever is stored.

The rules are Kafka's: the whole holds against Apache Kafka 2.4.1 as well (see `tests/interop/test_real_clients.py`).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.kafka.clients import NewRow, Row
from tests.kafka.real_clients import CODECS, PYTHON_CLIENTS, Client, Found, Sent, Write

CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
_TYPES = {CREATE_TIME: 1, LOG_APPEND_TIME: 2}
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2.4"}
"""What `message.format.version` says for each format."""
BATCH = 10


class Case(NamedTuple):
    """See the module."""

    writer: Client
    codec: str
    message_format: int
    timestamp_type: str
    compression_type: str
    headers: bool
    idempotent: bool

    @property
    def topic(self) -> str:
        marks = ("headers" if self.headers else "bare", "once" if self.idempotent else "plain")
        return ".".join(
            (self.writer.name, self.codec, f"v{self.message_format}", self.timestamp_type, f"as-{self.compression_type}", *marks)
        )

    @property
    def is_possible(self) -> bool:
        """zstd, headers and idempotent producers need format v2, and clients that know them."""
        needs_v2 = self.headers or self.idempotent or "zstd" in (self.codec, self.compression_type)
        return (
            self.codec in self.writer.codecs
            and (self.message_format == 2 or not needs_v2)
            and (self.writer.message_format == 2 or not (self.headers or self.idempotent))
        )

    def is_readable(self, reader: Client) -> bool:
        stored = self.codec if self.compression_type == "producer" else self.compression_type
        return stored in (reader.codecs_v0 if min(self.message_format, reader.message_format) == 0 else reader.codecs)

    def config(self) -> dict[str, str]:
        return {
            "message.format.version": FORMATS[self.message_format],
            "message.timestamp.type": self.timestamp_type,
            "compression.type": self.compression_type,
            # A few segments and index entries in each topic.
            "segment.bytes": "7000",
            "index.interval.bytes": "300",
        }


def cases(writers: Sequence[Client], seed: int = 6) -> list[Case]:
    """Cases in which every two choices meet that may: each next one is the best of a few hundred at random."""
    choices: tuple[Sequence[Any], ...] = (
        writers,
        CODECS,
        tuple(FORMATS),
        (CREATE_TIME, LOG_APPEND_TIME),
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        (False, True),
        (False, True),
    )
    chance = random.Random(seed)
    possible = [case for case in (Case(*each) for each in itertools.product(*choices)) if case.is_possible]
    left = {pair for case in possible for pair in _pairs(case)}
    picked = []
    while left:
        case = max(chance.sample(possible, min(400, len(possible))), key=lambda case: len(left & _pairs(case)))
        if left & _pairs(case):
            picked.append(case)
            left -= _pairs(case)
    return picked


def _pairs(case: Case) -> set[tuple[Any, ...]]:
    # A topic's own codec is chosen once for each writer's codec and format, not for each writer.
    return {(i, case[i], j, case[j]) for i, j in itertools.combinations(range(len(case)), 2) if (i, j) != (0, 4)}


def rows(case: Case, start_ms: int) -> list[NewRow]:
    """25 records: keys and values null, empty and long; times forward and back."""
    headers = [("trace", b"\x00\xff"), ("", b""), ("trace", b"again")]
    if case.writer.has_null_headers:
        headers.append(("null", None))
    return [
        NewRow(
            key=(None, b"", b"key-%d" % number)[number % 3],
            value=None if number == 7 else b"" if number == 8 else b"value %d " % number * (1 + number * 3),
            timestamp=start_ms + 1000 * (number ^ 5),
            headers=headers[: number % 5] if case.headers else (),
        )
        for number in range(25)
    ]


class Written(NamedTuple):
    """A case, what was written, what its writer was reported, and between which times."""

    case: Case
    rows: list[NewRow]
    sent: list[Sent]
    began_ms: int
    ended_ms: int


def write_all(bootstrap: str, picked: Sequence[Case]) -> list[Written]:
    """Fill the topics, each writer all of its own at once. They are there, with their configurations."""
    start_ms = int(time.time() * 1000) - 600_000
    written = []
    for writer in dict.fromkeys(case.writer for case in picked):
        its = [case for case in picked if case.writer is writer]
        new = [rows(case, start_ms) for case in its]
        began_ms = int(time.time() * 1000)
        writes = [Write(case.topic, each, case.codec, BATCH, case.idempotent) for case, each in zip(its, new, strict=True)]
        for case, each, sent in zip(its, new, writer.write(bootstrap, writes), strict=True):
            if isinstance(sent, str) and ("timeout" in sent.lower() or "timed_out" in sent.lower()):
                raise TimeoutError(f"{case.topic}: {sent}")
            assert not isinstance(sent, str), f"{case.topic}: {sent}"
            if case.timestamp_type == LOG_APPEND_TIME and case.message_format and writer.message_format == 0:
                # Its responses have no place for the broker's times: a reader's will do.
                sent = [Sent(row.offset, row.timestamp) for row in PYTHON_CLIENTS[0].read(bootstrap, [case.topic])[case.topic]]
            written.append(Written(case, each, sent, began_ms, int(time.time() * 1000)))
    return written


def check_sent(written: Written) -> None:
    """What the producer was reported: offsets without gaps; the broker's times where the broker sets them."""
    case, new, sent = written.case, written.rows, written.sent
    assert [each.offset for each in sent] == list(range(len(new))), case.topic
    if case.writer.message_format == 0 and (case.message_format == 0 or case.timestamp_type == CREATE_TIME):
        assert all(each.timestamp == -1 for each in sent), case.topic
    elif case.timestamp_type == LOG_APPEND_TIME:  # in v0 too, where nothing keeps it
        assert all(written.began_ms <= each.timestamp <= written.ended_ms for each in sent), case.topic
    elif case.writer.name != "aiokafka":  # which says a batch's first time for each of its records
        assert [each.timestamp for each in sent] == [row.timestamp for row in new], case.topic


def expected(written: Written, reader: Client) -> list[Row]:
    """What the reader must see."""
    case = written.case
    message_format = min(case.message_format, reader.message_format)
    result = []
    for sent, new in zip(written.sent, written.rows, strict=True):
        timestamp = new.timestamp if case.writer.message_format else -1
        if case.timestamp_type == LOG_APPEND_TIME:
            timestamp = sent.timestamp
        if message_format == 0:
            timestamp = -1
        headers = tuple(new.headers) if message_format == 2 else ()
        result.append(
            Row(sent.offset, timestamp, 0 if timestamp == -1 else _TYPES[case.timestamp_type], new.key, new.value, headers)
        )
    return result


def _typeless(rows: Sequence[Row]) -> list[Row]:
    """Libraries differ in what type they give to a record without a time."""
    return [row._replace(timestamp_type=0) if row.timestamp == -1 else row for row in rows]


class Other(NamedTuple):
    """A topic that was there before: its records as they are stored, and those that a read_committed consumer gets."""

    rows: Sequence[Row]
    committed: Sequence[Row] | None = None


def check_reader(bootstrap: str, written: Sequence[Written], reader: Client, others: Mapping[str, Other] | None = None) -> None:
    """Have it read all that it can from the beginning, and ask for times: before all, of records, between, after all."""
    others = others or {}
    readable = {each.case.topic: each for each in written if each.case.is_readable(reader)}
    times = {each.case.topic: list(_times(each, reader)) for each in written if reader.finds_by_time}
    committed = [topic for topic, other in others.items() if other.committed is not None]
    seen = reader.look(bootstrap, [*readable, *others], times, committed)
    for topic, each in readable.items():
        assert _typeless(seen.rows[topic]) == expected(each, reader), f"{topic}, read by {reader.name}"
    for topic, other in others.items():
        assert seen.rows[topic] == as_seen_by(reader, other.rows), f"{topic}, read by {reader.name}"
    for topic in committed:
        assert seen.committed[topic] == others[topic].committed, f"{topic}, read_committed by {reader.name}"
    by_topic = {each.case.topic: each for each in written}
    for topic, asked in times.items():
        for timestamp, answer in zip(asked, seen.found[topic], strict=True):
            rightly = first_at(expected(by_topic[topic], reader), timestamp)
            assert answer == rightly, f"{topic} at {timestamp}, by {reader.name}"


def as_seen_by(reader: Client, stored: Sequence[Row]) -> list[Row]:
    """What it sees of records: without headers up to v1, without times in v0."""
    if reader.message_format == 2:
        return list(stored)
    bare = [row._replace(headers=()) for row in stored]
    return bare if reader.message_format else [row._replace(timestamp=-1, timestamp_type=0) for row in bare]


def first_at(seen: Sequence[Row], timestamp: int) -> Found | None:
    """The first record at or after a time; None where there is none, or where records have no times."""
    return next((Found(row.offset, row.timestamp) for row in seen if row.timestamp_type and row.timestamp >= timestamp), None)


def _times(written: Written, reader: Client) -> Iterator[int]:
    times = sorted({row.timestamp for row in expected(written, reader)})
    yield 1
    for timestamp in (times[0], times[len(times) // 2], times[-1]):
        yield max(timestamp, 0)
        yield max(timestamp, 0) + 1
