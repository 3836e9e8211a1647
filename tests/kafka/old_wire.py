"""Produce and Fetch of old versions, by hand, at any broker: what clients of a release send, and the bytes that come back.

| message format | Produce | Fetch | clients |
|---|---|---|---|
| v0 | 1 | 1 | 0.9.0 |
| v1 | 2 | 2 | 0.10.0 |
| v2 | 3 | 4 | 0.11.0 |
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tests.broker.produce_helpers import Answer, answer, message_set, produce_request
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.compression import Codec
from tidelog.records.records import Record, iter_records
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.fetch import PartitionData as Fetched

PRODUCE, FETCH = (1, 2, 3), (1, 2, 4)
"""By message format."""

MAX_BYTES = 1 << 22

Where = Callable[[], int]
"""The port of a partition's leader, as it is known now."""

_RETRIED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


def produce(
    where: Where,
    topic: str,
    values: list[bytes],
    *,
    magic: int,
    partition: int = 0,
    at_ms: int = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
    acks: int = -1,
) -> int:
    """Append a batch to a partition's leader, again where that is another by now; return its first offset."""
    records = [Record(i, at_ms + i, CREATE_TIME, None, value) for i, value in enumerate(values)]
    return produce_set(where, topic, message_set(magic, codec, records), magic=magic, partition=partition, acks=acks)


def produce_set(where: Where, topic: str, data: bytes, *, magic: int, partition: int = 0, acks: int = -1) -> int:
    """The same with records as they go to the broker, in format `magic`."""
    request = produce_request([(topic, partition, data)], acks=acks)
    request.timeout_ms = int(PATIENCE_S * 900)  # A leader may have to leave a follower out first.
    answered: list[Answer] = []

    def is_done() -> bool:
        try:
            with RawClient(("127.0.0.1", where())) as client:
                got = answer(client.ask(request, PRODUCE[magic]))
        except OSError:
            return False
        assert got.error_code == 0 or got.error_code in _RETRIED, f"{topic}-{partition}: error {got.error_code}"
        answered.append(got)
        return got.error_code == 0

    wait_until(is_done, f"the leader of {topic}-{partition}", PATIENCE_S)
    return answered[-1].base_offset


def fetch(where: Where, topic: str, offset: int, *, version: int, partition: int = 0, max_bytes: int = MAX_BYTES) -> Fetched:
    """Return what a consumer gets from a partition's leader, which may be found only after a while."""
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        topics=[FetchTopic(topic, partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)])],
    )
    answered: list[Fetched] = []

    def is_done() -> bool:
        try:
            with RawClient(("127.0.0.1", where())) as client:
                (one,) = client.ask(request, version).responses[0].partitions
        except OSError:
            return False
        assert one.error_code == 0 or one.error_code in _RETRIED, (
            f"{topic}-{partition}: offset {offset}: error {one.error_code}, high watermark {one.high_watermark}"
        )
        answered.append(one)
        return one.error_code == 0

    wait_until(is_done, f"the leader of {topic}-{partition}", PATIENCE_S)
    return answered[-1]


def read_all(where: Where, topic: str, *, version: int, partition: int = 0) -> list[Record]:
    """Return all records of a partition up to its high watermark, by fetches of a version."""
    records: list[Record] = []
    offset = 0
    while True:
        got = fetch(where, topic, offset, version=version, partition=partition)
        found = records_of(bytes(got.records or b""))
        records += [record for record in found if record.offset >= offset]
        if not found or (offset := records[-1].offset + 1) >= got.high_watermark:
            return records


def records_of(data: bytes) -> list[Record]:
    """Return the records of a fetched answer, or of a file."""
    return [
        record
        for header in iter_headers(data)
        for record in iter_records(header, memoryview(data)[header.position : header.position + header.size])
    ]


def magics(data: bytes) -> list[int]:
    """Return the formats of batches in their order, without repetitions."""
    found = [header.magic for header in iter_headers(data)]
    return found[:1] + [later for earlier, later in pairwise(found) if later != earlier]
