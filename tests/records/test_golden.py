"""Logs that Kafka wrote decode to exactly the records that it served, and encode back to the bytes that it wrote."""

from __future__ import annotations

import itertools

import pytest

from tests.records.helpers import GOLDEN_PARTITIONS, as_expected, golden_batches, golden_partition, text
from tidelog.records.batch import LOG_APPEND_TIME, BatchHeader, check_crc
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.columns import Columns
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records


@pytest.mark.parametrize(("flavor", "topic", "partition"), GOLDEN_PARTITIONS)
def test_records_are_what_the_broker_served(flavor: str, topic: str, partition: int) -> None:
    wanted = golden_partition(flavor, topic, partition)
    found = [
        as_expected(record)
        for path, header, batch in golden_batches(flavor, topic, partition)
        if not header.is_control
        for record in iter_records(header, batch, path=path)
        if record.offset >= wanted["log_start"]
    ]
    assert found == wanted["records"]


@pytest.mark.parametrize(("flavor", "topic", "partition"), GOLDEN_PARTITIONS)
def test_columns_are_what_the_broker_served(flavor: str, topic: str, partition: int) -> None:
    wanted = golden_partition(flavor, topic, partition)
    columns = Columns(min_offset=wanted["log_start"])
    for path, header, batch in golden_batches(flavor, topic, partition):
        columns.add(header, batch, path=path)
    keys, values, headers = columns.keys(), columns.values(), columns.headers()
    lists = memoryview(headers.list_offsets).cast("i")
    header_keys = _entries(headers.key_offsets, headers.key_data, None)
    header_values = _entries(headers.value_offsets, headers.value_data, headers.value_validity)
    rows = zip(
        memoryview(columns.offsets()).cast("q"),
        memoryview(columns.timestamps().data).cast("q"),
        memoryview(columns.timestamp_types()).cast("b"),
        _entries(keys.offsets, keys.data, keys.validity),
        _entries(values.offsets, values.data, values.validity),
        ([[(header_keys[i] or b"").decode(), text(header_values[i])] for i in range(a, b)] for a, b in itertools.pairwise(lists)),
        strict=True,
    )
    assert [[o, t, kind + 1, text(k), text(v), h] for o, t, kind, k, v, h in rows] == wanted["records"]


def _entries(offsets: bytearray, data: bytearray, validity: bytearray | None) -> list[bytes | None]:
    cuts = memoryview(offsets).cast("i")
    return [
        bytes(data[cuts[i] : cuts[i + 1]]) if validity is None or validity[i >> 3] >> (i & 7) & 1 else None
        for i in range(len(cuts) - 1)
    ]


@pytest.mark.parametrize(("flavor", "topic", "partition"), GOLDEN_PARTITIONS)
def test_checksum(flavor: str, topic: str, partition: int) -> None:
    """MemoryRecordsTest.testChecksum: the checksums that Kafka wrote are the ones that we compute, for each format and codec."""
    for path, header, batch in golden_batches(flavor, topic, partition):
        check_crc(header, batch, path)


@pytest.mark.parametrize(("flavor", "topic", "partition"), GOLDEN_PARTITIONS)
def test_batches_are_built_byte_for_byte(flavor: str, topic: str, partition: int) -> None:
    for path, header, batch in golden_batches(flavor, topic, partition):
        if not _is_written_by_a_broker(topic, header):
            continue
        records = _as_produced(header, batch)
        if not records or records[-1].offset != header.last_offset or _lost_its_first(header, records):
            continue
        assert _rebuild(header, records) == batch, f"{path.name} at {header.position}"


def _is_written_by_a_broker(topic: str, header: BatchHeader) -> bool:
    """Whether the records section is not the producer's own, for librdkafka compresses with other libraries than Java's clients.

    A broker compresses anew in formats v0 and v1, and where a topic's codec is not the producer's.
    """
    return header.codec is Codec.NONE or header.magic < 2 or topic == "recompressed-lz4"


def _lost_its_first(header: BatchHeader, records: list[Record]) -> bool:
    """Whether compaction removed the record that the base timestamp came from: no builder can know it then."""
    return header.magic == 2 and records[0].offset != header.base_offset


def _as_produced(header: BatchHeader, batch: memoryview) -> list[Record]:
    """Return the records with the producers' timestamps, where those are still there to be read."""
    columns = Columns(include_control=True)
    columns.add(header, batch)
    times = memoryview(columns.create_times().data).cast("q")
    records = list(iter_records(header, batch))
    if header.timestamp_type != LOG_APPEND_TIME:
        return records
    return [record._replace(timestamp=time) for record, time in zip(records, times, strict=True)]


def _rebuild(header: BatchHeader, records: list[Record]) -> bytearray:
    if header.magic < 2:
        return build_message_set(
            records, header.magic, codec=header.codec, timestamp_type=header.timestamp_type, append_time=header.max_timestamp
        )
    return build_batch_v2(
        records,
        base_offset=header.base_offset,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        append_time=header.max_timestamp,
        leader_epoch=header.leader_epoch,
        producer=Producer(header.producer_id, header.producer_epoch, header.base_sequence),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
    )
