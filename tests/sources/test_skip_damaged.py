"""Salvage: damage of every kind in random logs; what is delivered and what is left out are all records, none of them twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tidelog
from tests.reader.golden import GOLDEN
from tests.reader.test_missing import one_partition
from tests.sources.logs import LogBuilder
from tidelog.errors import CorruptDataError, InvalidArgumentError, SegmentChangedError
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import BatchHeader
from tidelog.records.compression import Codec

TOPIC = "orders"


def a_log(folder: Path, seed: int) -> list[tuple[int, int, bytes | None]]:
    """Write a log of several segments; return its records."""
    random_ = random.Random(seed)
    codec = random_.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
    magic = random_.choice([0, 1, 2, 2, 2, 2]) if codec is Codec.NONE else 2
    builder = LogBuilder(folder, segment_bytes=random_.choice([1500, 6000, 1 << 20]))
    rows: list[tuple[int, int, bytes | None]] = []
    for _ in range(random_.randint(20, 60)):
        count = random_.randint(1, 6)
        made = [(1_000_000 + random_.randrange(1000), b"k", random_.randbytes(random_.randint(0, 60))) for _ in range(count)]
        first = builder.next_offset
        builder.append(made, codec=codec, magic=magic)
        rows += [(first + n, time if magic else -1, value) for n, (time, _, value) in enumerate(made)]
    builder.close()
    return rows


def headers(folder: Path) -> list[tuple[Path, BatchHeader]]:
    log = Log.open(folder / f"{TOPIC}-0")
    return [(segment.log_path, header) for segment in log.segments for header in segment.headers()]


def damage(random_: random.Random, path: Path, header: BatchHeader) -> None:
    data = bytearray(path.read_bytes())
    start, size = header.position, header.size
    kind = random_.randrange(7)
    if kind == 0:  # a flipped bit anywhere
        at = start + random_.randrange(size)
        data[at] ^= 1 << random_.randrange(8)
    elif kind == 1:  # the length
        data[start + 8 : start + 12] = random_.randrange(1 << 31).to_bytes(4, "big")
    elif kind == 2:  # zeros
        length = random_.randint(1, size * 2)
        data[start : start + length] = bytes(min(length, len(data) - start))
    elif kind == 3:  # garbage
        at = start + random_.randrange(size)
        length = min(random_.randint(1, 200), len(data) - at)
        data[at : at + length] = random_.randbytes(length)
    elif kind == 4:  # the offset, which no checksum covers
        data[start : start + 8] = random_.choice([0, header.base_offset + 1, header.base_offset + 300, 2**40]).to_bytes(8, "big")
    elif kind == 5:  # bytes that are gone
        at = start + random_.randrange(size)
        del data[at : at + random_.randint(1, 80)]
    else:  # bytes too many
        at = start + random_.randrange(size)
        data[at:at] = random_.randbytes(random_.randint(1, 80))
    path.write_bytes(data)


def read(folder: Path) -> tuple[list[tuple[int, int, bytes | None]], tidelog.ScanReport]:
    report = tidelog.ScanReport()
    table = tidelog.scan(folder, TOPIC, columns=["offset", "timestamp", "value"], skip_damaged=True, report=report).read_all()
    times = [-1 if time is None else time for time in table["timestamp"].cast("int64").to_pylist()]
    return list(zip(table["offset"].to_pylist(), times, table["value"].to_pylist(), strict=True)), report


@pytest.mark.parametrize("seed", range(100))
def test_rows_and_what_is_left_out_are_all_records(seed: int, tmp_path: Path) -> None:
    rows = a_log(tmp_path, seed)
    random_ = random.Random(seed)
    found = headers(tmp_path)
    for path, header in random_.sample(found, random_.randint(1, 3)):
        if header.end_position <= path.stat().st_size:
            damage(random_, path, header)
    got, report = read(tmp_path)
    ranges = [(one.first_offset, one.end_offset) for one in (*report.left_out, *report.missing)]
    assert ranges == sorted(ranges)
    offsets = [offset for offset, _, _ in got]
    assert offsets == sorted(set(offsets))
    known = {offset: (time, value) for offset, time, value in rows}
    # What a crash may have left at the end of the last segment is a torn tail: no checkpoint says that there was more.
    end = max([LogDir(tmp_path, skip_damaged=True).log(TOPIC, 0).log_end_offset, *(behind for _, behind in ranges)])
    for offset, time, value in got:
        assert known[offset] == (time, value)
        assert not any(first <= offset < behind for first, behind in ranges)
    left = {offset for first, behind in ranges for offset in range(first, min(behind, len(rows)))}
    assert set(offsets) | left == set(range(min(end, len(rows))))
    for one in report.left_out:
        assert one.records is None or one.records == one.end_offset - one.first_offset
        assert 0 <= one.start_position < one.end_position <= Path(one.path).stat().st_size
        assert one.reason


def test_without_the_option_damage_is_an_error(tmp_path: Path) -> None:
    a_log(tmp_path, 5)
    path, header = headers(tmp_path)[10]
    data = bytearray(path.read_bytes())
    data[header.end_position - 3] ^= 1
    path.write_bytes(data)
    with pytest.raises((CorruptDataError, SegmentChangedError)):
        tidelog.scan(tmp_path, TOPIC).read_all()
    _, report = read(tmp_path)
    (one,) = report.left_out
    assert (one.first_offset, one.end_offset) == (header.base_offset, header.next_offset)
    assert (one.start_position, one.end_position) == (header.position, header.end_position)
    assert one.records in (header.next_offset - header.base_offset, None)
    assert not report.is_complete
    assert "checksum" in one.reason


def test_a_batch_inside_a_damaged_ones_value_is_not_taken(tmp_path: Path) -> None:
    """A log of logs: the value is a batch of another log whose offset would fit."""
    builder = LogBuilder(tmp_path, segment_bytes=1 << 20)
    inner_folder = tmp_path / "inner"
    inner = LogBuilder(inner_folder, segment_bytes=1 << 20, start_offset=5)
    inner.append([(7, b"k", b"not ours")])
    inner.close()
    inside = next((inner_folder / f"{TOPIC}-0").glob("*.log")).read_bytes()
    for _ in range(5):
        builder.append([(1000, b"k", b"ours")])
    builder.append([(1000, b"k", b"x" * 50 + inside + b"y" * 50)])
    for _ in range(5):
        builder.append([(1000, b"k", b"ours")])
    builder.close()
    path, header = headers(tmp_path)[5]
    data = bytearray(path.read_bytes())
    data[header.position + 8 : header.position + 12] = b"\x00\x01\x00\x00"
    path.write_bytes(data)
    got, report = read(tmp_path)
    assert {value for _, _, value in got} == {b"ours"}
    assert [(one.first_offset, one.end_offset) for one in report.left_out] == [(5, 6)]


def test_what_kafka_wrote_and_bounds(tmp_path: Path) -> None:
    folder = one_partition("kafka-3.9.1", "v2-lz4-ct-0", tmp_path)
    sound = tidelog.scan(GOLDEN / "kafka-3.9.1" / "log", "v2-lz4-ct", skip_damaged=True).read_all()
    assert sound.equals(tidelog.scan(folder, "v2-lz4-ct").read_all())
    log = LogDir(folder).log("v2-lz4-ct", 0)
    header = list(log.segments[1].headers())[3]
    data = bytearray(log.segments[1].log_path.read_bytes())
    data[header.end_position - 3] ^= 1
    log.segments[1].log_path.write_bytes(data)
    bounds = {"start": "2020-09-20T12:27:00", "end": "2020-09-20T12:29:00"}
    for arguments in ({}, bounds, {"isolation": "read_committed"}, {"offsets": {0: (10, 1400)}}):
        whole = tidelog.scan(GOLDEN / "kafka-3.9.1" / "log", "v2-lz4-ct", **arguments).read_all()
        report = tidelog.ScanReport()
        got = tidelog.scan(folder, "v2-lz4-ct", skip_damaged=True, report=report, **arguments).read_all()
        lost = range(header.base_offset, header.next_offset)
        assert got["offset"].to_pylist() == [offset for offset in whole["offset"].to_pylist() if offset not in lost]
        assert [(one.first_offset, one.end_offset) for one in report.left_out] == [(lost.start, lost.stop)]


def test_brokers_have_no_files() -> None:
    with pytest.raises(InvalidArgumentError, match="skip_damaged reads segment files"):
        tidelog.scan("localhost:1", TOPIC, skip_damaged=True)
