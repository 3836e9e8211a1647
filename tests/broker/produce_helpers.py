"""Records and Produce requests for tests, and what came back, in short."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Bytes, Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

NOW_MS = 1_700_000_000_000

LATEST = 11
FIRST_V2 = 3


class Answer(NamedTuple):
    """Of one partition."""

    error_code: int
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1


def some_records(
    count: int = 3, *, at_ms: int = NOW_MS, key: bytes | None = b"key", value: bytes = b"value", first_offset: int = 0
) -> list[Record]:
    return [Record(first_offset + i, at_ms + i, CREATE_TIME, key, value + b" %d" % i) for i in range(count)]


def message_set(magic: int, codec: Codec = Codec.NONE, records: list[Record] | None = None) -> bytes:
    """A producer's records in any format: v2 as one batch, v1 with the records' times, v0 without."""
    given = some_records() if records is None else records
    if magic == 2:
        return bytes(build_batch_v2(given, codec=codec))
    if magic == 0:
        given = [record._replace(timestamp=-1) for record in given]
    return bytes(build_message_set(given, magic, codec=codec))


def patched(batch: Bytes, at: int, value: bytes, *, with_crc: bool = True) -> bytes:
    """Return a v2 batch with other bytes at a place, and the checksum that goes with them."""
    new = bytearray(batch)
    new[at : at + len(value)] = value
    if with_crc:
        struct.pack_into(">I", new, 17, crc32c(bytes(new[21:])))
    return bytes(new)


def produce_request(
    parts: Bytes | Iterable[tuple[str, int, Bytes | None]] | None,
    *,
    topic: str = "t",
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Records for one partition, or (topic, partition, records) for several."""
    listed = [(topic, 0, parts)] if parts is None or isinstance(parts, bytes | bytearray | memoryview) else list(parts)
    topics: dict[str, list[PartitionProduceData]] = {}
    for name, index, records in listed:
        topics.setdefault(name, []).append(PartitionProduceData(index=index, records=records))
    data = [TopicProduceData(name=name, partition_data=partitions) for name, partitions in topics.items()]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=data)


def answers(response: ProduceResponse) -> dict[tuple[str, int], Answer]:
    """What came back, by topic and partition."""
    return {
        (topic.name, one.index): Answer(one.error_code, one.base_offset, one.log_append_time_ms, one.log_start_offset)
        for topic in response.responses
        for one in topic.partition_responses
    }


def answer(response: ProduceResponse) -> Answer:
    """The only partition's."""
    (only,) = answers(response).values()
    return only
