"""Sets of records that a producer may send, good and bad ones, each with a name. Byte for byte the same on every run."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.records.batch import compute_crc
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.records import Record

T = 1_600_000_000_000

CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, BASE_TIME_AT, MAX_TIME_AT = 17, 21, 23, 27, 35
PRODUCER_AT, EPOCH_AT, SEQUENCE_AT, COUNT_AT, RECORDS_AT = 43, 51, 53, 57, 61


class RecordSet(NamedTuple):
    """What is sent for one partition."""

    name: str
    data: bytes | None


def records(count: int, rng: random.Random, *, times: str = "ascending", headers: bool = False) -> list[Record]:
    """`count` records; their timestamps as `times` says."""
    made = []
    for i in range(count):
        at = {"ascending": T + i, "descending": T - i, "none": -1, "equal": T, "zero": 0, "future": 4_102_444_800_000 + i}[times]
        key = rng.choice((None, b"", b"key-%d" % i))
        value = rng.choice((None, b"", b"value" * 10, rng.randbytes(30)))
        extra = (("h", b"1"), ("", None), ("größe", b"")) if headers and i % 2 == 0 else ()
        made.append(Record(i, at, 0, key, value, extra))
    return made


def good_sets(magic: int) -> Iterator[RecordSet]:
    """What any producer might send."""
    rng = random.Random(magic)
    codecs = [codec for codec in Codec if magic == 2 or codec is not Codec.ZSTD]
    for codec in codecs:
        for count, times in ((1, "ascending"), (5, "descending"), (3, "none"), (3, "equal"), (2, "zero"), (2, "future")):
            data = build(records(count, rng, times=times, headers=magic == 2), magic, codec)
            yield RecordSet(f"{codec.name.lower()} {count} {times}", data)


def build(made: list[Record], magic: int, codec: Codec = Codec.NONE, producer: Producer | None = None, **more: bool) -> bytes:
    if magic == 2:
        return bytes(build_batch_v2(made, codec=codec, producer=producer or Producer(), **more))
    return bytes(build_message_set(made, magic, codec=codec))


def with_right_crc(data: bytes | bytearray) -> bytes:
    """The batch with its checksum computed again."""
    fresh = bytearray(data)
    struct.pack_into(">I", fresh, CRC_AT, compute_crc(2, bytes(fresh)))
    return bytes(fresh)


def patched(data: bytes, code: str, at: int, value: int) -> bytes:
    """The batch with a number in it changed, and the checksum right."""
    fresh = bytearray(data)
    struct.pack_into(">" + code, fresh, at, value)
    return with_right_crc(fresh)


def bad_sets_v2() -> Iterator[RecordSet]:
    """What a producer of format v2 should not send, and what is merely odd."""
    rng = random.Random(2)
    plain = build(records(3, rng), 2)
    packed = build(records(3, rng), 2, Codec.GZIP)
    yield RecordSet("null", None)
    yield RecordSet("empty", b"")
    yield RecordSet("two batches", plain + plain)
    yield RecordSet("trailing byte", plain + b"\0")
    yield RecordSet("trailing head", plain + plain[:30])
    for kind, data in (("plain", plain), ("gzip", packed)):
        for cut in (1, 10, len(data) - 61, len(data) - 17, len(data) - 12, len(data) - 5):
            yield RecordSet(f"{kind} without its last {cut}", data[:-cut])
        yield RecordSet(f"{kind} crc", data[:CRC_AT] + bytes(4) + data[CRC_AT + 4 :])
        for length in (-1, 0, 13, 48, len(data) - 13, len(data) - 11, 1 << 30, (1 << 31) - 1):
            yield RecordSet(f"{kind} length {length - len(data) + 12:+}", data[:8] + struct.pack(">i", length) + data[12:])
        for magic in (0, 1, 3, 127, -1):
            yield RecordSet(f"{kind} magic {magic}", data[:16] + struct.pack(">b", magic) + data[17:])
        for count in (-1, 0, 2, 4, 1 << 30):
            yield RecordSet(f"{kind} count {count}", patched(data, "i", COUNT_AT, count))
        for delta in (-1, 0, 1, 3, 1 << 30):
            yield RecordSet(f"{kind} last offset delta {delta}", patched(data, "i", LAST_DELTA_AT, delta))
        for offset in (-1, 7, 1 << 40):
            yield RecordSet(f"{kind} base offset {offset}", struct.pack(">q", offset) + data[8:])
        for maximum in (-1, 0, T - 100, T + 1000):
            yield RecordSet(f"{kind} max timestamp {maximum}", patched(data, "q", MAX_TIME_AT, maximum))
        for base in (-1, 0, T + 1000):
            yield RecordSet(f"{kind} base timestamp {base}", patched(data, "q", BASE_TIME_AT, base))
        attributes = struct.unpack_from(">h", data, ATTRIBUTES_AT)[0]
        for bit, what in (
            (8, "log append time"),
            (16, "transactional"),
            (32, "control"),
            (64, "delete horizon"),
            (128, "unused"),
        ):
            yield RecordSet(f"{kind} marked {what}", patched(data, "h", ATTRIBUTES_AT, attributes | bit))
        for codec in range(1, 8):
            yield RecordSet(f"{kind} said to be codec {codec}", patched(data, "h", ATTRIBUTES_AT, attributes & ~7 | codec))
        for at in range(RECORDS_AT, len(data), max(1, (len(data) - RECORDS_AT) // 12)):
            for value in (0x00, 0x7F, 0xFF):
                fresh = data[:at] + bytes([value]) + data[at + 1 :]
                yield RecordSet(f"{kind} byte {at} {value:02x}", with_right_crc(fresh))
        yield RecordSet(f"{kind} bytes after the records", with_right_crc(longer(data, b"\0\0\0")))
    yield RecordSet("no records", no_records())
    yield RecordSet("producer without epoch", patched(plain, "q", PRODUCER_AT, 99))
    yield RecordSet("epoch without sequence", patched(patched(plain, "q", PRODUCER_AT, 99), "h", EPOCH_AT, 0))
    yield RecordSet("sequence without producer", patched(plain, "i", SEQUENCE_AT, 5))
    yield RecordSet("a marker", build(records(1, rng), 2, producer=Producer(5, 0, -1), is_transactional=True, is_control=True))


def longer(data: bytes, more: bytes) -> bytes:
    return data[:8] + struct.pack(">i", len(data) - 12 + len(more)) + data[12:] + more


def no_records() -> bytes:
    head = build([Record(0, T, 0, None, b"x", ())], 2)[:RECORDS_AT]
    fresh = bytearray(patched(longer(head, b""), "i", COUNT_AT, 0))
    struct.pack_into(">i", fresh, 8, RECORDS_AT - 12)
    return with_right_crc(fresh)


def bad_sets_legacy(magic: int) -> Iterator[RecordSet]:
    """The same of formats v0 and v1."""
    rng = random.Random(10 + magic)
    plain = build(records(3, rng), magic)
    packed = build(records(3, rng), magic, Codec.GZIP)
    yield RecordSet("null", None)
    yield RecordSet("empty", b"")
    yield RecordSet("two wrappers", packed + packed)
    yield RecordSet("plain and wrapped", plain + packed)
    for kind, data in (("plain", plain), ("gzip", packed)):
        for cut in (1, 10, 20, len(data) - 17, len(data) - 12, len(data) - 5):
            yield RecordSet(f"{kind} without its last {cut}", data[:-cut])
        yield RecordSet(f"{kind} crc", data[:12] + bytes(4) + data[16:])
        for length in (-1, 0, 5, 13, 14, 1 << 30):
            yield RecordSet(f"{kind} length {length}", data[:8] + struct.pack(">i", length) + data[12:])
        for other in (0, 1, 2, 3, -1):
            if other != magic:
                yield RecordSet(f"{kind} magic {other}", data[:16] + struct.pack(">b", other) + data[17:])
        yield RecordSet(f"{kind} offset 77", struct.pack(">q", 77) + data[8:])
        for at in range(17, len(data), max(1, (len(data) - 17) // 8)):
            yield RecordSet(f"{kind} byte {at}", data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    for attributes in (4, 5, 7, 8, 16):
        yield RecordSet(f"attributes {attributes}", with_attributes(magic, attributes))
    yield RecordSet("offsets all 0", b"".join(encode_message(magic, 0, T, None, b"v%d" % i) for i in range(3)))
    yield RecordSet("offsets going back", b"".join(encode_message(magic, 5 - i, T, None, b"v%d" % i) for i in range(3)))
    inner = build([Record(i, T, 0, None, b"inside", ()) for i in range(2)], magic, Codec.GZIP)
    yield RecordSet("a wrapper in a wrapper", wrapped(magic, inner, Codec.GZIP))
    yield RecordSet("a wrapper of nothing", wrapped(magic, b"", Codec.GZIP))
    yield RecordSet("a wrapper of the other format", wrapped(magic, build(records(2, rng), 1 - magic), Codec.GZIP))
    yield RecordSet("a wrapper with a key", wrapped(magic, build(records(2, rng), magic), Codec.GZIP, key=b"k"))
    yield RecordSet("a wrapper around a null", encode_message(magic, 0, T, None, None, codec=Codec.GZIP))


def wrapped(magic: int, inner: bytes, codec: Codec, key: bytes | None = None) -> bytes:
    from tidelog.records.compression import compress

    return encode_message(magic, 1, T, key, bytes(compress(codec, inner, None, magic=magic)), codec=codec)


def with_attributes(magic: int, attributes: int) -> bytes:
    import zlib

    data = bytearray(encode_message(magic, 0, T, b"k", b"v"))
    data[17] = attributes
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)
