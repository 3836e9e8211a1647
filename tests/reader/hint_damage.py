"""Random logs whose hints mislead easily, and damage to these hints: for tests that no such damage changes an answer.

A log here has few, coarse times (so that many batches have the same largest timestamp, which lets a wrong index entry agree with
the batch that it names), times out of order, holes as compaction leaves them, small and large batches, all formats, and values
that are batches themselves, with offsets that this log has.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.errors import CorruptDataError
from tidelog.formats import names
from tidelog.records.batch import BatchHeader, check_crc, iter_headers, read_header
from tidelog.records.compression import Codec

TOPIC = "hints"
SECOND = 1000
FIRST_MS = 1_700_000_000_000
NESTED = b"a batch: "
"""What stands before a batch in a value."""
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


class Sample(NamedTuple):
    """A log that was written, and what a plain reading of it gives."""

    data_dir: Path
    directory: Path
    records: list[tuple[int, int]]
    """Offset and timestamp (ms, -1 none) of each record."""
    times: list[int]
    """Times worth asking for."""


def write_log(data_dir: Path, rng: random.Random, *, large: bool = False) -> Sample:
    """Write one partition. `large`: few batches of 16 to 300 KB, as far apart as index entries may be."""
    directory = data_dir / f"{TOPIC}-0"
    builder = LogBuilder(directory, interval_bytes=rng.choice([0, 0, 200, 4096]), per_append=rng.random() < 0.2)
    records: list[tuple[int, int]] = []
    offset, second = 0, 0
    magics = rng.choice([[2], [2], [2], [1], [1, 2], [0, 1, 2]])
    disorder = rng.choice([0, 0, 1, 4, 12])
    count = rng.randrange(6, 25) if large else rng.randrange(4, 60)
    for number in range(count):
        magic = magics[len(magics) * number // count]
        second += rng.choice([0, 0, 1, 1, 3])
        times = []
        for _ in range(rng.randrange(1, 4)):
            late = rng.randrange(disorder + 1) if rng.random() < 0.5 else 0
            times.append(FIRST_MS + max(0, second - late) * SECOND if rng.random() < 0.98 else -1)
        size = rng.choice([16_000, 100_000, 300_000]) if large else rng.choice([5, 5, 40, 700])
        codec = rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP, Codec.ZSTD if magic == 2 else Codec.NONE])
        step = rng.choice([1, 1, 1, 2]) if magic == 2 else 1
        value = rng.randbytes(size // len(times))
        if rng.random() < 0.15:
            value = NESTED + build.batch(rng.randrange(offset + 1), times, magic=magic)
        builder.append(build.batch(offset, times, magic=magic, codec=codec, step=step, value=value))
        records += [(offset + i * step, -1 if magic == 0 else time) for i, time in enumerate(times)]
        offset = builder.next_offset + rng.choice([0, 0, 0, 0, 1, 9])
        if rng.random() < (0.1 if large else 0.07) and number + 1 < count:
            builder.roll(offset if rng.random() < 0.3 else None)
    if rng.random() < 0.3:
        builder.close_live()
    else:
        builder.close()
    known = sorted({time for _, time in records if time >= 0})
    return Sample(data_dir, directory, records, sorted({*known, *(time + 1 for time in known), FIRST_MS - 1}))


def logs_of(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{names.LOG_SUFFIX}"))


def headers_of(log: Path) -> list[BatchHeader]:
    return list(iter_headers(log.read_bytes()))


def nested_in(log: Path) -> list[int]:
    """Return where batches begin that are within values: whole, which those in compressed batches are not."""
    data = log.read_bytes()
    return [found.end() for found in re.finditer(NESTED, data) if _is_sound(data, found.end())]


def _is_sound(data: bytes, position: int) -> bool:
    try:
        header = read_header(data, position, position)
        check_crc(header, memoryview(data)[position : header.end_position])
    except CorruptDataError:
        return False
    return True


def single_lies(directory: Path, rng: random.Random) -> Iterator[str]:
    """Damage one entry of one index, or the file's length, again and again; the file is put back each time. Yields what."""
    while True:
        log = rng.choice(logs_of(directory))
        path = log.with_suffix(rng.choice([names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX]))
        yield from _damaged(path, rng.choice([_flip, _flip, _forge, _forge, _cut, _extend]), log, rng)


def any_lies(directory: Path, rng: random.Random) -> Iterator[str]:
    """The same, with many entries at once and with other files' content, too."""
    kinds = [_flip, _forge, _forge_all, _forge_all, _forge_rest, _swap_entries, _zero, _foreign, _sector]
    while True:
        log = rng.choice(logs_of(directory))
        path = log.with_suffix(rng.choice([names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX]))
        yield from _damaged(path, rng.choice(kinds), log, rng)


def nested_lies(directory: Path, rng: random.Random) -> Iterator[str]:
    """Have one entry of an offset index lead into a value that is a batch, again and again; never in a log without one."""
    logs = [log for log in logs_of(directory) if nested_in(log)]
    while logs:
        log = rng.choice(logs)
        yield from _damaged(log.with_suffix(names.INDEX_SUFFIX), _nest, log, rng)


def _damaged(path: Path, damage: object, log: Path, rng: random.Random) -> Iterator[str]:
    assert callable(damage)
    before = path.read_bytes()
    after = damage(path, bytearray(before), log, rng)
    if bytes(after) == before:
        return
    path.write_bytes(after)
    try:
        yield f"{damage.__name__} {path.name}"
    finally:
        path.write_bytes(before)


def _entry(path: Path) -> struct.Struct:
    return OFFSET_ENTRY if path.suffix == names.INDEX_SUFFIX else TIME_ENTRY


def _slots(path: Path, data: bytearray) -> int:
    return len(bytes(data).rstrip(b"\0")) // _entry(path).size + 1 if data else 0


def _lie(path: Path, log: Path, rng: random.Random) -> bytes:
    """Return an entry that a batch of the log agrees with, or nearly, wherever it stands.

    Most are about a batch that is no later than one before it: whoever begins there misses that one.
    """
    base, headers = int(log.stem), headers_of(log)
    reached = [-1, *accumulate((header.max_timestamp for header in headers), max)]
    late = [header for header, before in zip(headers, reached, strict=False) if -1 < header.max_timestamp <= before]
    header = rng.choice(late if late and rng.random() < 0.8 else headers)
    offset = rng.choice([header.last_offset] * 4 + [header.base_offset, header.last_offset + 1, header.base_offset - 1])
    if path.suffix == names.INDEX_SUFFIX:
        positions = [header.position, rng.choice(headers).position, *rng.sample(nested := nested_in(log), min(1, len(nested)))]
        return OFFSET_ENTRY.pack(max(0, offset - base), rng.choice(positions))
    time = rng.choice([header.max_timestamp] * 5 + [header.max_timestamp + 1, header.max_timestamp - 1, FIRST_MS * 2])
    return TIME_ENTRY.pack(time, max(0, offset - base))


def _flip(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    if data:
        slots = min(len(data), _slots(path, data) * _entry(path).size)
        data[rng.randrange(slots)] ^= 1 << rng.randrange(8)
    return data


def _forge(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    lie, slots = _lie(path, log, rng), _slots(path, data)
    slot = rng.choice([slots - 2, slots - 1, rng.randrange(slots)]) if slots > 1 else 0
    data[slot * len(lie) : (slot + 1) * len(lie)] = lie
    return data


def _nest(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    base, position, slots = int(log.stem), rng.choice(nested_in(log)), _slots(path, data)
    (first,) = struct.unpack_from(">q", log.read_bytes(), position)
    slot = rng.randrange(slots) if slots else 0
    data[slot * 8 : slot * 8 + 8] = OFFSET_ENTRY.pack(max(0, first - base) + rng.randrange(4), position)
    return data


def _forge_all(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    """An index in order, of which each entry agrees with its batch: as one that was built from another state of the log."""
    base, largest, entries = int(log.stem), -2, bytearray()
    left_out, headers = rng.choice([0.1, 0.5, 0.9]), headers_of(log)
    for header in headers[rng.randrange(len(headers)) if rng.random() < 0.7 else 0 :]:
        if rng.random() < left_out:
            continue
        if path.suffix == names.INDEX_SUFFIX:
            entries += OFFSET_ENTRY.pack(header.last_offset - base, header.position)
        elif header.max_timestamp > largest:
            largest = header.max_timestamp
            entries += TIME_ENTRY.pack(largest, header.last_offset - base)
    return entries


def _forge_rest(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    """The first entries, then one lie, and nothing more: the last entry says how late the segment is."""
    slot = rng.randrange(max(1, _slots(path, data)))
    return data[: slot * _entry(path).size] + _lie(path, log, rng)


def _swap_entries(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    size, slots = _entry(path).size, _slots(path, data) - 1
    if slots < 2:
        return data
    one, other = rng.sample(range(slots), 2)
    first, second = data[one * size : (one + 1) * size], data[other * size : (other + 1) * size]
    data[one * size : (one + 1) * size], data[other * size : (other + 1) * size] = second, first
    return data


def _foreign(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    others = [one for one in path.parent.iterdir() if one != path and one.stat().st_size < 1 << 20]
    alike = [one for one in others if one.suffix == path.suffix]
    return bytearray(rng.choice(alike or others).read_bytes())


def _cut(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data))] if data else data


def _extend(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    tail = rng.choice([bytes(rng.randrange(1, 200)), rng.randbytes(rng.randrange(1, 40)), bytes(data[-12:]), bytes(data[:24])])
    return data + tail


def _zero(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data) + 1)
    stop = rng.randrange(start, len(data) + 1)
    data[start:stop] = bytes(stop - start)
    return data


def _sector(path: Path, data: bytearray, log: Path, rng: random.Random) -> bytearray:
    """Many lies side by side."""
    size, slots = _entry(path).size, _slots(path, data)
    start = rng.randrange(max(1, slots))
    for slot in range(start, min(slots, start + rng.randrange(2, 12))):
        data[slot * size : (slot + 1) * size] = _lie(path, log, rng)
    return data
