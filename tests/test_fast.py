"""A function whose name ends in `_fast` gives the answer of a slower one, or None: then that has to be asked.

Each has a property here that asks both: `PAIRS`. One without fails `test_each_pair_has_its_property`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, batch, open_log
from tidelog.broker.partitions.header_check import USUAL, check_headers, check_headers_fast
from tidelog.decoding.arrow_json import PATIENCE, ArrowJson
from tidelog.decoding.object_decoder import ObjectDecoder
from tidelog.errors import CorruptBatchError, TidelogError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import HEADER_BYTES, _read_header_fast, read_header
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.kernel import COMPILED
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.append.append_info import AppendInfo, append_info_fast
from tidelog.storage.partition.append.appends import _validate
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.segment.log_segment import RollParams

SOURCE = Path(__file__).parents[1] / "src" / "tidelog"
seeds = st.integers(0, 2**32)


def drawn_batch(draw: random.Random, offset: int = 0) -> bytearray:
    """A batch, mostly sound."""
    producer = draw.choice([Producer(-1, -1, -1), Producer(7, 0, 0)])
    records = batch(
        offset,
        NOW_MS + draw.choice([0, -5, 10**7, -(10**9)]),
        draw.randrange(1, 4),
        codec=draw.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD]),
        producer=producer,
        transactional=producer.producer_id >= 0 and draw.random() < 0.4,
    )
    for _ in range(draw.choice([0, 0, 1, 3])):
        records[draw.randrange(min(len(records), 70))] = draw.choice([0, 1, 2, 127, 128, 255, draw.randrange(256)])
    return records


PIECES = [b"{}", b'{"a":', b"}", b"{", b"[", b"]", b",", b'"', b"\n", b"\0", b"\xff", b"NaN", b"1e999", b'"\\ud800"', b"1.0"]
KINDS = [
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
    pa.struct([("a", pa.float64()), ("b", pa.list_(pa.bool_()))]),
    pa.struct([("a", pa.struct([("a", pa.string())]))]),
]


def drawn_json(draw: random.Random) -> bytes | None:
    """Mostly an object with fields of a type in KINDS."""
    if draw.random() < 0.1:
        return None
    held = [None, 1, -(2**63), 2**63, 0.5, "x", "é😀", True, [True], {"a": "x"}]
    names = draw.choice(["", "a", "a", "ab", "abc"])
    value = json.dumps({name: draw.choice(held) for name in names}, ensure_ascii=draw.random() < 0.5).encode()
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        place = draw.randrange(len(value) + 1)
        value = value[:place] + draw.choice(PIECES) + value[place + draw.randrange(3) :]
    return value


def json_columns(draw: random.Random) -> None:
    kind = draw.choice(KINDS)
    values = pa.array([drawn_json(draw) for _ in range(draw.randrange(1, 4))], pa.binary())
    fast = ArrowJson(kind).column_fast(values)
    if fast is not None:
        decoder = ObjectDecoder(orjson.loads, kind)
        slow = decoder.decode(values)
        assert (fast.to_pylist(), 0, []) == (slow.column.to_pylist(), slow.failures, decoder.notices())


def header(draw: random.Random) -> None:
    records = drawn_batch(draw)
    fast = _read_header_fast(records, 0, 5) if len(records) >= HEADER_BYTES else None
    try:
        slow = read_header(records, 0, 5)
    except CorruptBatchError:
        assert fast is None
    else:
        assert fast == slow or (fast is None and slow.magic < 2)


def look(draw: random.Random) -> None:
    records = bytes(drawn_batch(draw)) * draw.choice([1, 1, 1, 2])
    version = draw.randrange(12)
    records = records[: draw.choice([len(records), draw.randrange(len(records))])]
    fast = check_headers_fast(records, version)
    try:
        slow = check_headers(records, version)
    except CorruptBatchError:
        assert fast is None
    else:
        assert fast is None or fast == slow == USUAL


def info(draw: random.Random) -> None:
    numbers = [draw.randrange(-1, 2**40) for _ in range(6)]
    assert append_info_fast(*numbers) == AppendInfo(*numbers)


def epochs(draw: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = LeaderEpochCache(Path(folder))
        for _ in range(12):
            epoch, offset = draw.randrange(4), draw.randrange(30)
            before: list[EpochEntry] = list(cache._epochs.entries)
            fast = cache.assign_fast(epoch, offset)
            slow = cache.assign(epoch, offset)
            if fast is not None:
                assert fast is slow is False and list(cache._epochs.entries) == before


def grown(folder: str, draw: random.Random) -> PartitionLog:
    log = open_log(Path(folder), segment_bytes=20_000, index_interval_bytes=100, segment_ms=10_000)
    for _ in range(draw.randrange(12)):
        log.append_as_leader(batch(timestamp=NOW_MS + draw.randrange(-9000, 9000), count=draw.randrange(1, 4)), 0)
    return log


def rolling(draw: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = grown(folder, draw)
        segment = log.segments.active
        for _ in range(30):
            size, last = draw.randrange(1, 30_000), log.log_end_offset + draw.choice([0, 5, 2**31, 2**32])
            timestamp, max_ms = NOW_MS + draw.randrange(-20_000, 40_000), draw.choice([0, 10_000, 2**40])
            params = RollParams(max_ms, 20_000, timestamp, last, size, NOW_MS + draw.randrange(20_000))
            fast = segment.should_roll_fast(size, timestamp, last, 20_000, max_ms)
            assert fast is None or segment.should_roll(params) is fast
        log.close()


def walking(draw: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = grown(folder, draw)
        segment = log.segments.active
        for _ in range(20):
            offset = draw.randrange(segment.base_offset, log.log_end_offset + 3)
            timestamp = draw.choice([NO_TIMESTAMP, NOW_MS + draw.randrange(-9000, 9000)])
            entry = segment._floor(offset)
            fast = segment._walk_to_fast(offset, entry, timestamp, draw.choice([0, 100, 100_000]))
            slow = (one for one in segment.batches_from(offset) if one.last_offset >= offset and one.max_timestamp >= timestamp)
            first = next(slow, None)
            if fast is None:
                assert first is None
            else:
                assert first is not None and fast[0] == (first.last_offset, first.position, first.size)
        log.close()


def watermark(draw: random.Random) -> None:
    """Two logs are given the same; one's high watermark follows the fast way."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        logs = [open_log(Path(folder), segment_bytes=2000) for folder in (one, other)]
        sequences = {7: 0, 8: 0}
        for _ in range(draw.randrange(1, 15)):
            producer_id = draw.choice([-1, 7, 8])
            producer = Producer(-1, -1, -1) if producer_id < 0 else Producer(producer_id, 0, sequences[producer_id])
            if producer_id >= 0:
                sequences[producer_id] += 1
            sent = batch(producer=producer, transactional=producer_id >= 0)
            for log in logs:
                log.append_as_leader(bytearray(sent), 0)
            if draw.random() < 0.7:
                logs[0].watermarks.update_high_watermark_fast()
                logs[1].watermarks.update_high_watermark(logs[1].log_end_offset)
            fast, slow = (
                (marks.log_start_offset, marks.fetch_high_watermark_metadata(), marks.fetch_last_stable_offset_metadata())
                for marks in (log.watermarks for log in logs)
            )
            assert fast == slow
        for log in logs:
            log.close()


def appending(draw: random.Random) -> None:
    """Two logs are given the same; one of them has no fast way."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        properties: dict[str, int | str] = {
            "segment_bytes": draw.choice([400, 3000, 10**6]),
            "segment_ms": draw.choice([1000, 10**9]),
            "segment_index_bytes": draw.choice([24, 36, 1024]),
            "index_interval_bytes": draw.choice([0, 200, 4096]),
            "max_message_bytes": draw.choice([100, 10_000]),
            "message_timestamp_type": draw.choice(["CreateTime"] * 5 + ["LogAppendTime"]),
            "message_timestamp_before_max_ms": draw.choice([10**5, 2**63 - 1]),
            "message_timestamp_after_max_ms": draw.choice([10**5, 2**63 - 1]),
            "cleanup_policy": draw.choice(["delete", "delete", "compact"]),
            "flush_messages": draw.choice([5, 2**63 - 1]),
        }
        logs = [open_log(Path(folder), **properties) for folder in (one, other)]
        write_behind = draw.choice([2, 3, 64])
        for log in logs:
            log.segments.active.index_write_behind = write_behind
            log._appends.plain_fast = lambda *_: None  # type: ignore[method-assign]  # `append_plain_fast` stays.
        epoch = 0
        for _ in range(draw.randrange(1, 20)):
            if draw.random() < 0.4:
                for log in logs:
                    log.scheduler.tick()
            epoch += draw.random() < 0.1
            records = bytes(
                draw.choices(
                    [drawn_batch(draw), of_producer(draw, logs[1]), batch(0, NOW_MS + draw.randrange(-3, 3))], [1, 3, 1]
                )[0]
            )
            fast_data, slow_data = bytearray(records), bytearray(records)
            fails, fast = draw.random() < 0.1, None
            with failing_writes(draw) if fails else nullcontext():
                fast = logs[0].append_plain_fast(fast_data, epoch, NOW_MS)
            if fast is None and not fails:
                assert fast_data == records, "nothing was changed"
            slow, outcomes = [], []
            for log, data in zip(logs, (fast_data, slow_data), strict=True):
                try:
                    slow.append(fast if log is logs[0] and fast is not None else log.append_as_leader(data, epoch))
                except TidelogError as error:
                    outcomes.append(type(error))
            assert slow[:1] == slow[1:] and outcomes[:1] == outcomes[1:] and fast_data == slow_data
            assert appended_state(logs[0]) == appended_state(logs[1])
        for log in logs:
            log.close()


@contextmanager
def failing_writes(draw: random.Random) -> Iterator[None]:
    """The disk is full: writes fail, or write nothing. Or they are interrupted."""
    error = draw.choice([OSError(errno.ENOSPC, "no space"), KeyboardInterrupt(), None])

    def pwrite(*_: object) -> int:
        if error is not None:
            raise error
        return 0

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "pwrite", pwrite)
        yield


def of_producer(draw: random.Random, log: PartitionLog) -> bytearray:
    """A batch of an idempotent producer: mostly the next one, sometimes repeated, out of order, fenced, or in a transaction."""
    producer_id = draw.randrange(3)
    entry = log.producer_state.last_entry(producer_id)
    epoch, sequence = (0, 0) if entry is None else (entry.producer_epoch, entry.last_sequence + 1)
    epoch += draw.choices([0, 1, -1], [20, 2, 1])[0]
    sequence = min(
        draw.choices([sequence, sequence - draw.randrange(9), sequence + 1, 0, 2**31 - 2], [20, 3, 1, 1, 1])[0], 2**31 - 1
    )
    producer = Producer(producer_id, max(epoch, 0), max(sequence, 0))
    is_transactional = draw.random() < (0.5 if entry is not None and entry.has_open_transaction else 0.05)
    return batch(0, NOW_MS + draw.randrange(-3, 3), draw.randrange(1, 3), producer=producer, transactional=is_transactional)


def appended_state(log: PartitionLog) -> list[Any]:
    """What appends change."""
    found: list[Any] = [log.log_end_offset, log.high_watermark, log.recovery_point, log.producer_state.map_end_offset]
    found += [dict(log.producer_state.active_producers), log.watermarks.first_unstable_offset]
    for segment in log.segments.values():
        found += [segment.base_offset, segment.log.read(0, segment.size_bytes), segment.bytes_since_last_index_entry]
        found += [segment.max_timestamp_and_offset_so_far, segment.first_batch_timestamp]
        indexes = segment.offset_index, segment.time_index
        found += [(index.live().entries_from(0), index.unwritten_entries) for index in indexes]
    return [*found, log.leader_epochs.entries, log.local._has_index_write, log.metadata_file.is_dirty]


def validation(draw: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        time_type = draw.choice(["CreateTime", "LogAppendTime"])
        log = open_log(Path(folder), message_timestamp_type=time_type, max_message_bytes=draw.choice([100, 10_000]))
        appends = log._appends
        appends._adopt(log.config, 3)
        records, first_offset = drawn_batch(draw), draw.randrange(1000)
        append_ms = NOW_MS if appends._stamps else NO_TIMESTAMP
        fast_data, slow_data = bytearray(records), bytearray(records)
        fast = appends._validate_fast(memoryview(fast_data), first_offset, NOW_MS, append_ms)
        if fast is None:
            assert fast_data == records, "nothing was changed"
        else:
            slow = _validate(
                memoryview(slow_data), appends._rules, log.config.max_message_bytes, first_offset, NOW_MS, AppendOrigin.CLIENT
            )
            assert slow is not None
            assert (list(fast[0]), bytes(fast[1]), *fast[2:]) == (list(slow[0]), bytes(slow[1]), *slow[2:])
        log.close()


PAIRS: dict[str, Callable[[random.Random], None]] = {
    "broker/partitions/header_check.py check_headers_fast": look,
    "decoding/arrow_json.py column_fast": json_columns,
    "records/batch.py _read_header_fast": header,
    "storage/partition/append/append_info.py append_info_fast": info,
    "storage/partition/append/appends.py _validate_fast": validation,
    "storage/partition/append/appends.py plain_fast": appending,
    "storage/partition/leader_epoch_cache.py assign_fast": epochs,
    "storage/partition/watermarks.py update_high_watermark_fast": watermark,
    "storage/segment/log_segment.py should_roll_fast": rolling,
    "storage/segment/segment_reader.py _walk_to_fast": walking,
}


def test_each_pair_has_its_property() -> None:
    found = {
        f"{path.relative_to(SOURCE)} {name}"
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r"^ *(?:async )?def (\w+_fast)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == PAIRS.keys()


@pytest.mark.parametrize("pair", PAIRS)
def test_both_say_the_same(pair: str) -> None:
    @examples(150)
    @given(seed=seeds)
    def run(seed: int) -> None:
        PAIRS[pair](random.Random(seed))

    run()


@pytest.mark.skipif(not COMPILED, reason="interpreted, the kernel takes nothing")
def test_usual_json_goes_the_fast_way() -> None:
    """Until values differ too often: the attempt would only cost time."""
    arrow = ArrowJson(KINDS[0])
    usual, other = pa.array([b'{"a":1,"b":"x"}', None, b"{}"], pa.binary()), pa.array([b'{"c":1}'], pa.binary())
    for _ in range(PATIENCE):
        assert arrow.column_fast(usual) is not None
        assert arrow.column_fast(other) is None
    for _ in range(PATIENCE):
        assert arrow.column_fast(other) is None
    assert arrow.column_fast(usual) is None


@pytest.mark.skipif(not COMPILED, reason="interpreted, the kernel takes nothing")
def test_a_plain_batch_is_appended_in_one_call(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=500)
    for _ in range(12):  # The first ones make the indexes, and what is written soon.
        log.append_as_leader(batch(), 0)
        log.scheduler.tick()
    assert log.append_plain_fast(batch(), 0, NOW_MS) is not None
    for sequence in range(2):  # An index entry is due.
        log.append_as_leader(batch(producer=Producer(7, 0, sequence)), 0)
    for sequence in range(2, 6):
        assert log.append_plain_fast(batch(producer=Producer(7, 0, sequence)), 0, NOW_MS) is not None
    log.close()


@pytest.mark.skipif(not COMPILED, reason="interpreted, the kernel takes nothing")
def test_the_usual_records_go_the_fast_way(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert check_headers_fast(bytes(batch()), 9) is USUAL
    assert log._appends._validate_fast(memoryview(batch()), 0, NOW_MS, NO_TIMESTAMP) is not None
    log.append_as_leader(batch(), 0)
    assert log.segments.active.should_roll_fast(10, NOW_MS, 2, 10**9, 10**9) is False
    log.close()
