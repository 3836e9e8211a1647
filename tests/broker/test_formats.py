"""Message formats over the wire: what is stored of what is sent, and what is sent of what is stored (KIP-31, KIP-32).

`CELLS` are the eight of KIP-32's migration plan, with a ninth column: what the draft says of each. Its two columns are asserted
of the bytes and of the work: calls of the codecs, counted here, and the broker's own counters. One cell cannot be as the draft
has it: inside a compressed v0 message offsets are absolute, so a broker that assigns them has to compress again, as Kafka does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import FIRST_V2, NOW_MS, answer, message_set, produce_request, some_records
from tests.broker.raw import RawClient
from tidelog.clock import ManualClock
from tidelog.model import NO_TIMESTAMP
from tidelog.records import compression
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Bytes, Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
"""A value of message.format.version for each format."""
FETCH_VERSIONS = range(18)
COUNT = 3


def known_magic(fetch_version: int) -> int:
    """The newest message format that a version of Fetch may be answered with."""
    return 0 if fetch_version < 2 else 1 if fetch_version < 4 else 2


def fetch(broker: RunningBroker, client: RawClient, version: int, offset: int = 0, topic: str = "t") -> PartitionData:
    """One partition's answer to one request."""
    view = broker.on_loop(lambda: broker.node.topics.get(topic))
    assert view is not None
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    named = FetchTopic(topic=topic, topic_id=view.topic_id, partitions=[wanted])
    response = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1_000_000, topics=[named]), version)
    data: PartitionData = response.responses[0].partitions[0]
    assert data.error_code == 0
    return data


def records_of(data: Bytes) -> Iterator[Record]:
    """The records of whole batches, as a consumer reads them."""
    view = memoryview(data)
    for header in iter_headers(view):
        yield from iter_records(header, view[header.position : header.end_position])


def consume(broker: RunningBroker, client: RawClient, version: int) -> tuple[list[Record], set[int]]:
    """Read the topic from its start to its end; return the records and the formats that they came in."""
    end = broker.on_loop(lambda: broker.node.manager.log("t", 0).high_watermark)
    found: list[Record] = []
    formats: set[int] = set()
    offset = 0
    while offset < end:
        data = bytes(fetch(broker, client, version, offset).records or b"")
        formats |= {header.magic for header in iter_headers(data)}
        new = [record for record in records_of(data) if record.offset >= offset]
        assert new, f"nothing at {offset}"
        found += new
        offset = new[-1].offset + 1
    return found, formats


def alter(broker: RunningBroker, settings: dict[str, str]) -> None:
    broker.on_loop(lambda: broker.node.manager.alter_config("t", settings))


def on_disk(broker: RunningBroker, position: int = 0) -> bytes:
    """The bytes of the first segment's file."""
    return (broker.data_dir / "t-0" / f"{0:020d}.log").read_bytes()[position:]


@pytest.fixture(scope="module")
def formats_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("formats") / "data", ManualClock(NOW_MS + 10_000), file_delete_delay_ms=0)
    yield broker
    broker.stop()


@pytest.fixture
def broker(formats_broker: RunningBroker) -> Iterator[RunningBroker]:
    """One for all of this file: each test finds it without topics."""
    yield formats_broker

    def delete_topics() -> None:
        for name in formats_broker.node.manager.topics():
            formats_broker.node.manager.delete_topic(name)

    formats_broker.on_loop(delete_topics)


@pytest.fixture
def codec_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often anything was compressed or decompressed, by anyone, from the last `clear` on."""
    calls: Counter[str] = Counter()

    def counted(function: Any) -> Any:
        def call(codec: Codec, *args: Any, **options: Any) -> Any:
            calls[function.__name__] += codec is not Codec.NONE
            return function(codec, *args, **options)

        return call

    modules = [module for name, module in sys.modules.items() if name.startswith("tidelog.") and module is not compression]
    for function in (compression.compress, compression.decompress):
        for module in modules:
            if vars(module).get(function.__name__) is function:
                monkeypatch.setattr(module, function.__name__, counted(function))
    return calls


class Work(NamedTuple):
    """Batches that the broker says it has worked on."""

    decompressed: int = 0
    recompressed: int = 0
    up_converted: int = 0
    down_converted: int = 0


def work(broker: RunningBroker) -> Work:
    """What was done so far."""
    counters = broker.node.metrics.counters
    return Work(*(getattr(counters, f"{name}_batches") for name in Work._fields))


# --- KIP-32's eight cells -------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A cell of the plan. The draft's words are about compressed messages."""

    name: str
    disk: int
    """The format on the disk: 0 in phase 1, 1 in phase 2."""
    api: str
    version: int
    """1 carries v0 messages, 2 carries v1, and a fetcher of it knows both."""
    recompresses: bool
    draft: bool
    """Whether the draft says so."""

    @property
    def magic(self) -> int:
        return self.version - 1


CELLS = (
    Cell("phase 1, produce v1", 0, "produce", 1, True, False),
    Cell("phase 1, produce v2", 0, "produce", 2, True, True),
    Cell("phase 1, fetch v1", 0, "fetch", 1, False, False),
    Cell("phase 1, fetch v2", 0, "fetch", 2, False, False),
    Cell("phase 2, produce v1", 1, "produce", 1, True, True),
    Cell("phase 2, produce v2", 1, "produce", 2, False, False),
    Cell("phase 2, fetch v1", 1, "fetch", 1, True, True),
    Cell("phase 2, fetch v2", 1, "fetch", 2, False, False),
)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_kip_32_cells(broker: RunningBroker, codec_calls: Counter[str], cell: Cell, codec: Codec) -> None:
    """The bytes that come out; whether they were unpacked and packed again; whether they are the very same."""
    broker.create_topic("t", message_format_version=RELEASES[cell.disk])
    is_produce = cell.api == "produce"
    sent = message_set(cell.magic if is_produce else cell.disk, codec)
    first = produce_request(message_set(cell.disk, codec))
    with broker.client() as client:
        # Offsets do not begin at 0, where absolute and relative ones would be the same.
        assert answer(client.ask(first, cell.disk + 1)).base_offset == 0
        position = len(on_disk(broker))
        if not is_produce:
            assert answer(client.ask(first, cell.disk + 1)).base_offset == COUNT
        codec_calls.clear()
        before = work(broker)
        if is_produce:
            assert answer(client.ask(produce_request(sent), cell.version)).base_offset == COUNT
            out = on_disk(broker, position)
        else:
            out = bytes(fetch(broker, client, cell.version, COUNT).records or b"")
        calls = Counter(codec_calls)
    done = Work(*(now - then for now, then in zip(work(broker), before, strict=True)))

    to = cell.disk if is_produce else min(cell.disk, cell.magic)
    is_packed = codec is not Codec.NONE
    is_rebuilt = cell.recompresses and is_packed
    is_unpacked = is_packed and (is_produce or cell.recompresses)
    is_converted = to != (cell.magic if is_produce else cell.disk)
    expected = [record._replace(offset=COUNT + i) for i, record in enumerate(some_records())]
    if 0 in (to, cell.magic):
        expected = [record._replace(timestamp=NO_TIMESTAMP) for record in expected]
    if not is_produce and is_converted:
        # What is shorter than it was is filled up, with the beginning of a message that consumers leave out.
        out = out[: list(iter_headers(out))[-1].end_position]
    assert out == bytes(build_message_set(expected, to, codec=codec))
    assert calls == Counter(compress=int(is_rebuilt), decompress=int(is_unpacked))
    if is_produce:
        assert done == Work(is_unpacked, is_rebuilt, is_converted)
        if is_packed:
            # Patched in place: nothing but the offset in front has changed.
            assert (out[8:] == sent[8:]) == (not cell.recompresses)
    else:
        batches = 1 if is_packed else COUNT
        assert done == Work(down_converted=batches * is_converted)
        assert (out == on_disk(broker, position)) == (not cell.recompresses)


def test_where_the_draft_is_wrong() -> None:
    """One cell, and why: see this file's head."""
    assert [cell.name for cell in CELLS if cell.recompresses != cell.draft] == ["phase 1, produce v1"]


# --- formats, raised and lowered ------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A record, and the oldest format on its way: it has what that one knows."""

    record: Record
    oldest: int


def send(client: RawClient, magic: int, first: int, codec: Codec = Codec.NONE, stored: int = 2) -> list[Sent]:
    """Produce records in a format, as its clients do; return what consumers of v2 must be given."""
    records = some_records(COUNT, at_ms=NOW_MS + first)
    if magic == 2 and stored == 2:
        records = [record._replace(headers=(("h", b"%d" % i), ("null", None))) for i, record in enumerate(records)]
    version = (1, 2, 9)[magic]
    data = bytes(build_batch_v2(records, codec=codec)) if magic == 2 else message_set(magic, codec, records)
    assert answer(client.ask(produce_request(data), version)).error_code == 0
    return [Sent(record._replace(offset=first + i), min(magic, stored)) for i, record in enumerate(records)]


def as_seen(sent: list[Sent], known: int) -> list[Record]:
    """What a consumer that knows formats up to `known` sees: times from v1 on, headers from v2 on."""
    seen = []
    for record, oldest in sent:
        new = record._replace(timestamp_type=CREATE_TIME if known else NO_TIMESTAMP_TYPE)
        if min(oldest, known) < 2:
            new = new._replace(headers=())
        if min(oldest, known) < 1:
            new = new._replace(timestamp=NO_TIMESTAMP)
        seen.append(new)
    return seen


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_format_is_raised_and_lowered_on_a_live_topic(broker: RunningBroker, codec: Codec) -> None:
    """v0 → v1 → v2 → v1 → v0, in one segment; producers of every version in each phase, and consumers of every version."""
    broker.create_topic("t", message_format_version=RELEASES[0])
    sent: list[Sent] = []
    with broker.client() as client:
        for disk in (0, 1, 2, 1, 0):
            alter(broker, {"message.format.version": RELEASES[disk]})
            for magic in (0, 1, 2):
                sent += send(client, magic, len(sent), codec, disk)
        assert {header.magic for header in iter_headers(on_disk(broker))} == {0, 1, 2}
        for version in FETCH_VERSIONS:
            found, formats = consume(broker, client, version)
            known = known_magic(version)
            assert max(formats) <= known
            assert [typed(record) for record in found] == [typed(record) for record in as_seen(sent, known)]


def typed(record: Record) -> Record:
    """A record of v0 has no type of its timestamp, whatever it is converted into says CreateTime."""
    return record._replace(timestamp_type=NO_TIMESTAMP_TYPE if record.timestamp == NO_TIMESTAMP else record.timestamp_type)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_old_consumer_begins_in_the_middle_of_a_batch(broker: RunningBroker, version: int) -> None:
    """An uncompressed batch is converted from the offset on that was asked for; compressed, the whole batch comes."""
    broker.create_topic("t")
    with broker.client() as client:
        for first, codec in ((0, Codec.NONE), (COUNT, Codec.GZIP)):
            send(client, 2, first, codec)
        for offset, expected in ((1, [1, 2]), (4, [3, 4, 5])):
            data = fetch(broker, client, version, offset)
            assert [record.offset for record in records_of(data.records or b"")][: len(expected)] == expected


# --- timestamp types ------------------------------------------------------------------------------------------------------


def test_the_timestamp_type_is_switched_on_a_live_topic(start_broker: StartBroker) -> None:
    """Each record keeps the type and the time that it was given; every consumer that knows times sees both."""
    clock = ManualClock(NOW_MS + 50_000)
    broker = start_broker(clock=clock)
    broker.create_topic("t")
    expected: list[tuple[int, int]] = []
    with broker.client() as client:
        for i, kind in enumerate(("CreateTime", "LogAppendTime", "CreateTime", "LogAppendTime")):
            alter(broker, {"message.timestamp.type": kind})
            clock.advance(1000)
            for magic, codec in ((0, Codec.NONE), (1, Codec.NONE), (1, Codec.LZ4), (2, Codec.NONE), (2, Codec.LZ4)):
                records = some_records(2, at_ms=NOW_MS + i)
                got = answer(client.ask(produce_request(message_set(magic, codec, records)), (1, 2, 9)[magic]))
                if kind == "LogAppendTime":
                    expected += [(clock.now_ms(), LOG_APPEND_TIME)] * 2
                    assert got.log_append_time == (clock.now_ms() if magic else -1)
                else:
                    times = [NO_TIMESTAMP] * 2 if magic == 0 else [NOW_MS + i, NOW_MS + i + 1]
                    expected += [(time, CREATE_TIME) for time in times]
                    assert got.log_append_time == -1
        for version in FETCH_VERSIONS:
            found, _ = consume(broker, client, version)
            if known_magic(version) == 0:
                assert {(record.timestamp, record.timestamp_type) for record in found} == {(NO_TIMESTAMP, NO_TIMESTAMP_TYPE)}
            else:
                assert [(record.timestamp, record.timestamp_type) for record in found] == expected
        for target in (NOW_MS, NOW_MS + 2, NOW_MS + 50_000, clock.now_ms(), clock.now_ms() + 1):
            reached = [(time, offset) for offset, (time, _) in enumerate(expected) if time >= target]
            wanted = ListOffsetsPartition(partition_index=0, timestamp=target)
            asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
            for version in range(1, 10):
                told = client.ask(asked, version).topics[0].partitions[0]
                assert (told.error_code, told.timestamp, told.offset) == (0, *(reached[0] if reached else (-1, -1)))


def test_append_time_is_what_consumers_of_compressed_v1_see(broker: RunningBroker) -> None:
    """The wrapper has it, and it holds for all inside, whose own times are the producer's still (KIP-32)."""
    broker.create_topic("t", message_format_version=RELEASES[1], message_timestamp_type="LogAppendTime")
    sent = message_set(1, Codec.GZIP)
    with broker.client() as client:
        client.ask(produce_request(sent), 2)
        now = broker.clock.now_ms()
        for version in (2, 3, 4, 11):
            data = bytes(fetch(broker, client, version).records or b"")
            assert data == on_disk(broker)
            assert [(r.timestamp, r.timestamp_type) for r in records_of(data)] == [(now, LOG_APPEND_TIME)] * COUNT
    (header,) = iter_headers(sent)
    (stored,) = iter_headers(data)
    assert data[34:] == sent[34:]  # key and value: the packed messages
    assert (header.timestamp_type, stored.timestamp_type) == (CREATE_TIME, LOG_APPEND_TIME)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_take_no_headers(broker: RunningBroker, magic: int) -> None:
    """Kafka fails on them, too: a producer that uses headers needs a topic of format v2."""
    broker.create_topic("t", message_format_version=RELEASES[magic])
    batch = build_batch_v2([Record(0, NOW_MS, CREATE_TIME, b"k", b"v", (("h", b"v"),))])
    with broker.client() as client:
        assert answer(client.ask(produce_request(bytes(batch)), FIRST_V2)).error_code == -1
    assert on_disk(broker) == b""
