"""The batch kernel, compiled and interpreted, against a plain model built from what the rest of the package has."""

from __future__ import annotations

import random
import struct
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.helpers import with_right_crc
from tests.records.kernels import KERNELS
from tidelog.errors import CorruptBatchError
from tidelog.records.batch import MIN_HEADER_BYTES, BatchHeader, check_crc, read_header
from tidelog.records.kernel.primitives.build_stamp import check_sources


@pytest.fixture(scope="module", autouse=True, params=list(KERNELS))
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each test runs over both; this stands in for the column kernels' fixture of the folder."""
    return KERNELS[request.param]


# --- checksums


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 255, 767, 768, 769, 1003, 1536, 6143, 6144, 6145, 20_000])
def test_checksums(kernel: ModuleType, length: int) -> None:
    data = random.Random(length).randbytes(length + 3)[3:]
    assert kernel.crc32c(data) == kernel.crc32c_by_table(data) == crc32c(data)
    assert kernel.crc32(data) == zlib.crc32(data)
    for cut in (0, 1, length // 2, length):
        assert kernel.crc32c(data[cut:], kernel.crc32c(data[:cut])) == crc32c(data)
        assert kernel.crc32c_by_table(data[cut:], kernel.crc32c_by_table(data[:cut])) == crc32c(data)
        assert kernel.crc32(data[cut:], kernel.crc32(data[:cut])) == zlib.crc32(data)


def test_which_checksum(kernel: ModuleType) -> None:
    assert kernel.CRC32C in (("SSE4.2", "ARMv8", "table") if kernel.COMPILED else ("package",))


# --- a stale compiled kernel


def test_another_source_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "some_kernel.py").write_text("newer")
    compiled = str(tmp_path / "some_kernel.cpython-311-x86_64-linux-gnu.so")
    with pytest.raises(
        ImportError, match=r"tidelog\.records\.some_kernel was compiled from a different version of .*make install"
    ):
        check_sources("tidelog.records.some_kernel", compiled, zlib.crc32(b"older"), 0, tmp_path)
    check_sources("tidelog.records.some_kernel", compiled, zlib.crc32(b"newer"), 0, tmp_path)
    (tmp_path / "some_kernel.py").unlink()
    check_sources("tidelog.records.some_kernel", compiled, 0, 0, tmp_path)


def test_another_shared_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "primitives").mkdir()
    for name, text in (("primitives/some.h", "of C"), ("some.pxd", "of Cython")):
        (tmp_path / name).write_text(text)
    compiled = str(tmp_path / "some_kernel.cpython-311-x86_64-linux-gnu.so")
    check_sources("some_kernel", compiled, 0, zlib.crc32(b"of Cof Cython"), tmp_path)
    with pytest.raises(
        ImportError, match=r"some_kernel was compiled from a different version of the .pxd and .h files in .*make install"
    ):
        check_sources("some_kernel", compiled, 0, zlib.crc32(b"of C"), tmp_path)


# --- the walk


def batch(
    offset: int,
    size: int = 100,
    *,
    magic: int = 2,
    last_delta: int = 0,
    timestamp: int = 1000,
    epoch: int = -1,
    attributes: int = 0,
    producer_id: int = -1,
) -> bytes:
    """Return a batch of any content with a right checksum."""
    if magic == 2:
        body = struct.pack(">hiqqqhii", attributes, last_delta, 0, timestamp, producer_id, 0, 0, last_delta + 1)
        head = struct.pack(">qiibI", offset, size - 12, epoch, 2, 0) + body
    else:
        head = struct.pack(">qiIbb", offset, size - 12, 0, magic, attributes)
        head += struct.pack(">q", timestamp) if magic == 1 else b""
    return bytes(with_right_crc(head + random.Random(offset).randbytes(size - len(head))))


def test_a_digest_tells_batches_apart(kernel: ModuleType) -> None:
    """Offset, size and checksum of each, in their order, and nothing else; the last one need only begin."""
    batches = [batch(0), batch(1, 300), batch(5, 70, magic=1), batch(6, 80, magic=0), batch(9)]
    data = b"".join(batches)
    headers = []
    position = 0
    for one in batches:
        headers.append(read_header(data, position, position))
        position += len(one)
    identities = [struct.pack(">qiI", one.base_offset, one.size - 12, one.crc) for one in headers]
    digest = crc32c(b"".join(identities))
    assert kernel.digest_batches(data, len(data)) == (len(data), digest)
    for count, header in enumerate(headers):
        before = crc32c(b"".join(identities[:count]))
        assert kernel.digest_batches(data, header.position) == (header.position, before)
        assert kernel.digest_batches(data[header.position :], len(data) - header.position, before)[1] == digest
        begun = data[: header.position + 21]
        assert kernel.digest_batches(begun, len(data)) == (header.end_position, crc32c(identities[count], before))
        assert kernel.digest_batches(begun[:-1], len(data)) == (header.position, before)
    assert kernel.digest_batches(b"", 100) == (0, 0)
    assert kernel.digest_batches(bytes(100), 100) == (0, 0)
    assert kernel.digest_batches(data[:16] + b"\x03" + data[17:], 100) == (0, 0)
    for at in (7, 17, 20):
        assert kernel.digest_batches(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], len(data))[1] != digest


class Model(NamedTuple):
    """What a walk should find."""

    valid_bytes: int
    headers: list[BatchHeader]
    fault: str
    index: bytes
    times: bytes
    epochs: list[tuple[int, int]]
    last: list[int]
    told: list[int]


def model(data: bytes, base_offset: int, interval: int) -> Model:
    """Walk as the specification says (§4.7), one header object after the other."""
    headers: list[BatchHeader] = []
    position = last_index_position = 0
    last_offset, largest, at, fault = base_offset - 1, -1, -1, ""
    index, times, epochs = b"", b"", []
    last_time = first = append_time = -1
    while len(data) - position >= MIN_HEADER_BYTES:
        (length,) = struct.unpack_from(">i", data, position + 8)
        whole = length + 12 <= len(data) - position
        try:
            header = read_header(data, position, position)
            if not whole:
                break
            check_crc(header, data[position : header.end_position])
        except CorruptBatchError as error:
            if length >= 14 and not whole and data[position + 16] <= 2 and length + 12 >= (26, 34, 61)[data[position + 16]]:
                break
            fault = error.message
            break
        if (header.base_offset if header.magic == 2 else header.last_offset) <= last_offset:
            fault = "order"
            break
        if header.last_offset - base_offset > 2**31 - 1:
            fault = "overflow"
            break
        if not headers:
            first = header.max_timestamp
        headers.append(header)
        last_offset = header.last_offset
        if header.magic > 0 and header.attributes & 8:
            append_time = header.max_timestamp
        if header.max_timestamp > largest:
            largest, at = header.max_timestamp, last_offset
        if position - last_index_position > interval:
            index += struct.pack(">ii", last_offset - base_offset, position)
            if largest > last_time:
                times += struct.pack(">qi", largest, at - base_offset)
                last_time = largest
            last_index_position = position
        if header.magic == 2 and header.leader_epoch >= 0 and (not epochs or header.leader_epoch > epochs[-1][0]):
            epochs.append((header.leader_epoch, header.base_offset))
        position = header.end_position
    if largest > last_time:
        times += struct.pack(">qi", largest, at - base_offset)
    return Model(position, headers, fault, index, times, epochs, [last_offset, largest, at, first, append_time], told_of(headers))


def told_of(headers: list[BatchHeader]) -> list[int]:
    """Return the positions of markers, of batches that open a transaction or lie outside of one, and of the last five of each."""
    told: set[int] = set()
    kept: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=5))
    is_open: dict[int, bool] = defaultdict(bool)
    for header in headers:
        producer = header.producer_id
        if producer < 0:
            continue
        if header.is_control:
            told.add(header.position)
            is_open[producer] = False
            continue
        kept[producer].append(header.position)
        if header.is_transactional != is_open[producer]:
            told.add(header.position)
            is_open[producer] = True
    return sorted(told.union(*kept.values()))


def walk(kernel: ModuleType, data: bytes, base_offset: int, interval: int, chunk: int) -> Any:
    """Hand `data` over in chunks, as a reader of a file does."""
    scan = kernel.SegmentScan(base_offset, interval)
    position = 0
    while position < len(data):
        consumed = scan.scan(memoryview(data)[position : position + chunk], position)
        position += consumed
        if consumed == 0:
            if scan.fault or not chunk < scan.needed_bytes <= len(data) - position:
                break
            chunk = scan.needed_bytes
    assert scan.valid_bytes == position
    scan.finish()
    return scan


def assert_agrees(scan: Any, expected: Model) -> None:
    assert scan.valid_bytes == expected.valid_bytes
    assert scan.batches == len(expected.headers)
    assert bool(scan.fault) == bool(expected.fault)
    assert scan.fault == 0 or scan.fault_position == expected.valid_bytes
    assert (scan.index_entries, scan.time_entries, scan.epochs) == (expected.index, expected.times, expected.epochs)
    numbers = [scan.last_offset, scan.max_timestamp, scan.offset_of_max_timestamp, scan.first_max_timestamp]
    assert [*numbers, scan.last_append_time] == expected.last
    assert scan.next_offset == scan.last_offset + 1
    assert scan.producer_positions() == expected.told
    assert scan.producers == len({header.producer_id for header in expected.headers} - {-1})


def log_of(seed: int, batches: int) -> tuple[int, bytes]:
    """A segment's base and bytes: batches of all formats in order, now and then out of order."""
    chance = random.Random(seed)
    base = offset = chance.choice([0, 7, 2**40])
    out = b""
    for _ in range(batches):
        delta = chance.randint(0, 3)
        offset += chance.choice([0, 0, 0, 1, 5, 2**28, 2**30] if chance.randint(0, 9) == 0 else [0, 0, 1])
        if chance.randint(0, 60) == 0:
            offset -= chance.randint(1, 4)
        magic = chance.choice([0, 1, 2, 2, 2, 2])
        out += batch(
            max(offset, 0),
            chance.randint((26, 34, 61)[magic], 200),
            magic=magic,
            last_delta=delta,
            timestamp=chance.randint(-1, 50),
            epoch=chance.randint(-1, 6),
            attributes=chance.choice([0, 0, 8, 16, 16, 24, 32, 48] if magic == 2 else [0, 8]),
            producer_id=chance.choice([-1, 1, 2, 3, 2**40, 2**62]),
        )
        offset += delta + 1 if magic == 2 else 1
    return base, out


logs = st.builds(log_of, st.integers(0, 2**32), st.integers(0, 60))


@examples(300)
@given(log=logs, interval=st.sampled_from([0, 1, 150, 1000]), chunk=st.sampled_from([18, 61, 300, 10_000]))
def test_agrees_with_the_model(kernel: ModuleType, log: tuple[int, bytes], interval: int, chunk: int) -> None:
    base, data = log
    assert_agrees(walk(kernel, data, base, interval, chunk), model(data, base, interval))


@examples(300)
@given(
    log=logs,
    damage=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=2),
    cut=st.integers(0, 80),
    tail=st.sampled_from([b"", bytes(40), b"\xff" * 70]),
    chunk=st.sampled_from([61, 300, 10_000]),
)
def test_agrees_with_the_model_on_damage(
    kernel: ModuleType, log: tuple[int, bytes], damage: list[tuple[int, int]], cut: int, tail: bytes, chunk: int
) -> None:
    base, data = log
    broken = bytearray(data[: len(data) - cut])
    for index, mask in damage:
        if broken:
            broken[index % len(broken)] ^= mask
    broken += tail
    assert_agrees(walk(kernel, bytes(broken), base, 150, chunk), model(bytes(broken), base, 150))


def test_tables_grow(kernel: ModuleType) -> None:
    """Thousands of producers, epochs, markers and index entries."""
    count = 2000 if kernel.COMPILED else 1200
    data = b"".join(
        batch(i, 61 + i % 3, timestamp=i, epoch=i, producer_id=i * 2**45 % 1009, attributes=48 if i % 7 == 0 else 16)
        for i in range(count)
    )
    scan = walk(kernel, data, 0, 0, 10_000)
    assert_agrees(scan, model(data, 0, 0))
    assert len(scan.epochs) == count and len(scan.index_entries) == 8 * (count - 1)


FAULTS = {
    "batch length too small": struct.pack(">qiib", 1, 13, 0, 2) + bytes(60),
    "unknown batch magic": struct.pack(">qiib", 1, 50, 0, 3) + bytes(60),
    "batch too small for its magic": struct.pack(">qiib", 1, 48, 0, 2) + bytes(60),
    "batch offset out of range": batch(2**63 - 2, last_delta=2),
    "the batch checksum does not match": batch(1)[:-1] + b"?",
    "batch offset too low for its place": batch(0),
    "batch offset does not fit its segment": batch(2**31),
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults(kernel: ModuleType, what: str) -> None:
    good = batch(0)
    scan = kernel.SegmentScan(0, 0)
    assert scan.scan(good + FAULTS[what] + batch(5), 0) == len(good)
    assert kernel.BATCH_FAULTS[scan.fault] == what
    assert (scan.fault == kernel.BATCH_OVERFLOW) == (what == "batch offset does not fit its segment")
    assert (scan.fault_position, scan.valid_bytes, scan.batches) == (len(good), len(good), 1)
    assert scan.scan(batch(5), len(good)) == 0, "a fault is final"


@pytest.mark.parametrize("magic", [0, 1])
def test_faults_of_older_formats(kernel: ModuleType, magic: int) -> None:
    minimum = 26 + 8 * magic
    assert kernel.SegmentScan(0, 0).scan(batch(0, minimum, magic=magic), 0) == minimum
    for data in (
        struct.pack(">qiIb", 0, minimum - 13, 0, magic) + bytes(60),
        struct.pack(">qiIb", -1, minimum - 12, 0, magic) + bytes(60),
        batch(0, magic=magic)[:-1] + b"?",
    ):
        scan = kernel.SegmentScan(0, 0)
        assert scan.scan(data, 0) == 0 and scan.fault < 0


def test_position_beyond_int32(kernel: ModuleType) -> None:
    scan = kernel.SegmentScan(0, 0)
    assert scan.scan(batch(0) + batch(1), 2**31 - 100) == 100
    assert kernel.BATCH_FAULTS[scan.fault] == "batch position beyond int32"


def test_below_the_base(kernel: ModuleType) -> None:
    scan = kernel.SegmentScan(10, 0)
    assert scan.scan(batch(9, last_delta=5), 0) == 0
    assert kernel.BATCH_FAULTS[scan.fault] == "batch offset too low for its place"


def test_cut_off(kernel: ModuleType) -> None:
    """A buffer may end anywhere; how much is needed is reported once the length is there."""
    data = batch(0, 100) + batch(1, 150)
    for end in range(len(data) + 1):
        scan = kernel.SegmentScan(0, 0)
        consumed = scan.scan(data[:end], 0)
        assert (consumed, scan.fault) == (0 if end < 100 else 100 if end < 250 else 250, 0)
        assert scan.needed_bytes == (100 if 18 <= end < 100 else 150 if 118 <= end < 250 else 0)


def test_without_checksums(kernel: ModuleType) -> None:
    data = batch(0)[:-1] + b"?" + batch(1, magic=1)[:-1] + b"?"
    assert kernel.SegmentScan(0, 0, check_crc=False).scan(data, 0) == len(data)
    assert kernel.SegmentScan(0, 0).scan(data, 0) == 0


def test_any_buffer(kernel: ModuleType) -> None:
    data = batch(0)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"?" + data)[1:]):
        assert kernel.SegmentScan(0, 0).scan(buffer, 0) == len(data)


# --- what producers' state must be given


class Kept(NamedTuple):
    """A producer's state as the storage keeps it, in short."""

    epoch: int
    batches: tuple[int, ...]
    open_from: int
    markers: tuple[int, ...]


def replay(headers: Iterator[BatchHeader]) -> dict[int, Kept]:
    state: dict[int, Kept] = {}
    for header in headers:
        if header.producer_id < 0:
            continue
        before = state.get(header.producer_id, Kept(-1, (), -1, ()))
        batches = before.batches if header.producer_epoch == before.epoch else ()
        if header.is_control:
            kept = Kept(header.producer_epoch, batches, -1, (*before.markers, header.base_offset, before.open_from))
        else:
            opens = header.is_transactional and before.open_from < 0
            open_from = header.base_offset if opens else before.open_from
            kept = Kept(header.producer_epoch, (*batches, header.base_offset)[-5:], open_from, before.markers)
        state[header.producer_id] = kept
    return state


@examples(300)
@given(log=logs)
def test_told_enough(log: tuple[int, bytes]) -> None:
    base, data = log
    expected = model(data, base, 0)
    told = set(expected.told)
    assert replay(iter(expected.headers)) == replay(header for header in expected.headers if header.position in told)
