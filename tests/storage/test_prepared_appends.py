"""An append whose records were prepared elsewhere writes what an append at once writes, wherever the log has gone meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.partition_logs import NOW_MS, config, open_log
from tidelog.clock import ManualClock
from tidelog.errors import InvalidTimestampError
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record, iter_records
from tidelog.storage.partition.append.appends import AT_ONCE_BYTES, TooMuchAtOnceError
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation

FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}


def sent(magic: int, codec: Codec, count: int) -> bytes:
    records = [Record(i, NOW_MS + i if magic else -1, CREATE_TIME, b"k", b"value %d" % i) for i in range(count)]
    return bytes(build_batch_v2(records, codec=codec) if magic == 2 else build_message_set(records, magic, codec=codec))


def stored(log: PartitionLog) -> bytes:
    return bytes(log.read(0, 1 << 30, FetchIsolation.LOG_END).data)


def told(log: PartitionLog) -> list[tuple[object, ...]]:
    """What a reader gets: offsets and times, keys and values."""
    data = stored(log)
    return [
        (one.offset, one.timestamp, one.key, one.value)
        for header in iter_headers(data)
        for one in iter_records(header, data[header.position : header.end_position])
    ]


@settings(max_examples=60, deadline=None)
@given(
    came=st.sampled_from((0, 1, 2)),
    keeps=st.sampled_from((0, 1, 2)),
    codec=st.sampled_from((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)),
    target=st.sampled_from(("producer", "uncompressed", "lz4", "gzip")),
    stamps=st.booleans(),
    moved=st.integers(0, 3),
    waited_ms=st.integers(0, 5),
)
def test_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    came: int,
    keeps: int,
    codec: Codec,
    target: str,
    stamps: bool,
    moved: int,
    waited_ms: int,
) -> None:
    if codec is Codec.ZSTD and (came < 2 or keeps < 2):
        return
    data = sent(came, codec, 4)
    logs = []
    for name in ("at-once", "prepared"):
        clock = ManualClock(NOW_MS)
        folder = tmp_path_factory.mktemp(name)
        log = open_log(
            folder,
            clock,
            message_format_version=FORMATS[keeps],
            compression_type=target,
            message_timestamp_type="LogAppendTime" if stamps else "CreateTime",
        )
        prepare = log.prepare_append(data, 0)
        prepared = prepare() if name == "prepared" else None
        for _ in range(moved):
            log.append_as_leader(bytearray(sent(keeps, Codec.NONE, 3)), 0)
        clock.advance(waited_ms)
        while True:
            try:
                info = log.append_as_leader(bytearray(data), 0, prepared=prepared)
                break
            except TooMuchAtOnceError:
                assert keeps == 0 and moved  # Only they cannot be moved.
                prepared = log.prepare_append(data, 0)()
        assert info.first_offset == 3 * moved
        logs.append(log)
    assert told(logs[0]) == told(logs[1])
    if not (stamps and waited_ms):  # Records inside of compressed ones may carry the time at which they were prepared.
        assert stored(logs[0]) == stored(logs[1])
    assert logs[0].log_end_offset == logs[1].log_end_offset == 3 * moved + 4
    for log in logs:
        log.close()


def test_small_ones_are_taken_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.append_as_leader(bytearray(sent(2, Codec.LZ4, 10)), 0, is_hurried=True).last_offset == 9


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_large_ones_are_not(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path)
    data = bytes(build_batch_v2([Record(0, NOW_MS, CREATE_TIME, None, bytes(AT_ONCE_BYTES))], codec=codec))
    before = bytearray(data)
    with pytest.raises(TooMuchAtOnceError):
        log.append_as_leader(before, 0, is_hurried=True)
    assert before == data and log.log_end_offset == 0
    prepared = log.prepare_append(before, 0)()
    assert log.append_as_leader(before, 0, is_hurried=True, prepared=prepared).last_offset == 0
    assert log.append_as_leader(bytearray(data), 0).last_offset == 1  # Who is in no hurry needs nothing prepared.


def test_what_is_packed_again_is_large_sooner(tmp_path: Path) -> None:
    log = open_log(tmp_path, compression_type="zstd")
    with pytest.raises(TooMuchAtOnceError):
        log.append_as_leader(bytearray(sent(2, Codec.NONE, 10_000)), 0, is_hurried=True)


def test_another_configuration_begins_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = sent(2, Codec.LZ4, 3)
    prepared = log.prepare_append(data, 0)()
    log.update_config(config(compression_type="gzip"))
    with pytest.raises(TooMuchAtOnceError):
        log.append_as_leader(bytearray(data), 0, prepared=prepared)
    assert log.log_end_offset == 0


def test_what_is_refused_is_refused_elsewhere(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_before_max_ms=1)
    late = bytes(build_batch_v2([Record(0, NOW_MS - 1000, CREATE_TIME, None, b"v")], codec=Codec.LZ4))
    with pytest.raises(InvalidTimestampError):
        log.prepare_append(late, 0)()
