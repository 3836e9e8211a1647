"""Codecs: what Kafka writes, what it reads besides, and bounds that hold."""

from __future__ import annotations

import gzip
import mmap
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest

from tests.records.helpers import header_of, raw_batch_v2, read_all, simple_records
from tidelog.errors import DecompressionError, InvalidArgumentError, UnsupportedCompressionTypeError
from tidelog.records import compression
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import (
    DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    Codec,
    compress,
    decompress,
    xxh32,
)
from tidelog.records.legacy import build_message_set, encode_message
from tidelog.records.records import iter_records


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough: no kernel has a part in this."""


CODECS = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1 << 20

SAMPLES = {
    "empty": b"",
    "short": b"x",
    "text": b"the tide comes in, the tide goes out. " * 20_000,
    "random": os.urandom(200_000),
    "zeros": bytes(3 * MIB),
    "one block": b"ab" * (32 * 1024),
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_round_trip(codec: Codec, sample: str, kind: Callable[[bytes], bytes]) -> None:
    data = SAMPLES[sample]
    assert bytes(decompress(codec, kind(bytes(compress(codec, kind(data)))))) == data


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (1, 19, -5))], ids=str)
def test_levels(codec: Codec, levels: tuple[int, ...]) -> None:
    data = SAMPLES["text"]
    for level in levels:
        assert bytes(decompress(codec, compress(codec, data, level))) == data


def test_gzip_as_java_writes_it() -> None:
    """No name, no time, and an operating system that is not told (255, as in Java since 16)."""
    packed = bytes(compress(Codec.GZIP, SAMPLES["text"]))
    assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(packed) == SAMPLES["text"]


def test_gzip_of_several_members() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"tide") + gzip.compress(b"log"))) == b"tidelog"


@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0", b"\x1f", b"\x1f\x8b\x07 and so on"])
def test_what_stands_behind_the_last_gzip_member_is_passed_over(rest: bytes) -> None:
    """As by Java, if it does not begin as a member does."""
    packed = gzip.compress(b"tide") + gzip.compress(b"log" * 1000)
    assert bytes(decompress(Codec.GZIP, packed + rest)) == b"tide" + b"log" * 1000
    with pytest.raises(DecompressionError):
        decompress(Codec.GZIP, packed + b"\x1f\x8b\x08" + bytes(20))
    with pytest.raises(DecompressionError):
        decompress(Codec.GZIP, packed[:-12] + rest)


def test_snappy_as_kafka_writes_it() -> None:
    """The xerial frame: magic, version 1, compatible with 1, then blocks of 32 KiB with their sizes."""
    data = SAMPLES["random"]
    packed = bytes(compress(Codec.SNAPPY, data))
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    index, out = 16, []
    while index < len(packed):
        (size,) = struct.unpack_from(">i", packed, index)
        out.append(bytes(cramjam.snappy.decompress_raw(packed[index + 4 : index + 4 + size])))
        index += 4 + size
    assert [len(block) for block in out[:-1]] == [32 * 1024] * (len(out) - 1)
    assert b"".join(out) == data


def test_raw_snappy() -> None:
    """A block without a frame, as some clients send it."""
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLES["text"])))) == SAMPLES["text"]


@pytest.mark.parametrize(
    "damage",
    [
        b"\x82SNAPPY\x00",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xffabc",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09abc",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00",
    ],
)
def test_damaged_xerial_frames(damage: bytes) -> None:
    with pytest.raises(DecompressionError, match="a snappy block is damaged"):
        decompress(Codec.SNAPPY, damage)


def test_a_snappy_block_that_claims_too_much_is_not_allocated() -> None:
    """The claim of a few bytes to be gigabytes is refused by what snappy can express, before the bound is asked."""
    with pytest.raises(DecompressionError, match="cannot decompress to"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"a" * 20)


def test_lz4_as_kafka_writes_it() -> None:
    """Version 1, independent blocks of 64 KiB, no checksums; what does not shrink is stored."""
    packed = bytes(compress(Codec.LZ4, SAMPLES["random"]))
    assert packed[:7] == bytes.fromhex("04224d18604082")
    (size,) = struct.unpack_from("<I", packed, 7)
    assert size == 0x80000000 | 64 * 1024
    assert packed[-4:] == bytes(4)


def test_lz4_header_checksum_of_v0() -> None:
    """Kafka's historic header checksum covers the magic number too, in message format v0 only (spec §10.2)."""
    data = SAMPLES["text"]
    v0, v1 = bytes(compress(Codec.LZ4, data, magic=0)), bytes(compress(Codec.LZ4, data, magic=1))
    assert v0[:6] == v1[:6]
    assert v0[6] == xxh32(v0[:6]) >> 8 & 0xFF != v1[6]
    assert v0[7:] == v1[7:]
    assert bytes(decompress(Codec.LZ4, v0, magic=0)) == data
    with pytest.raises(DecompressionError, match="lz4"):
        decompress(Codec.LZ4, v0, magic=1)


@pytest.mark.parametrize("checksum", [0, 0x82, 0xFF])
def test_lz4_header_checksum_of_v0_is_ignored(checksum: int) -> None:
    """Storage specification, extra check 8: v0 frames are accepted with any header checksum, v1 frames with the right one."""
    records = simple_records(5)
    inside = b"".join(encode_message(0, r.offset, -1, r.key, r.value) for r in records)
    packed = bytearray(compress(Codec.LZ4, inside, magic=0))
    packed[6] = checksum
    wrapper = encode_message(0, 4, -1, None, bytes(packed), codec=Codec.LZ4)
    assert [record.value for record in read_all(wrapper)] == [record.value for record in records]


def test_lz4_frames_with_more_in_their_header() -> None:
    """Content size and checksums, which Kafka does not write, and blocks that lean on each other."""
    data = SAMPLES["text"]
    for options in ({"content_checksum": True}, {"block_linked": True}, {"content_checksum": False, "block_linked": False}):
        compressor = cramjam.lz4.Compressor(**options)
        compressor.compress(data)
        packed = bytearray(bytes(compressor.finish()))
        assert bytes(decompress(Codec.LZ4, packed)) == data
        packed[6] ^= 0xFF
        if not packed[4] & 0x08:
            assert bytes(decompress(Codec.LZ4, packed, magic=0)) == data


def test_xxh32() -> None:
    """Reference values of XXH32 with seed 0."""
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a") == 0x550D7456
    assert xxh32(b"abc") == 0x32D153FF
    with pytest.raises(InvalidArgumentError):
        xxh32(bytes(16))


def test_zstd_as_java_writes_it() -> None:
    """A frame of unknown size that ends in an empty block: the bytes that Kafka 3.9.1's builder gave for this."""
    section = bytes.fromhex(
        "70000000066b32375e7b226964223a302c2263617272696572223a225541222c2264656c6179223a32372c2264657374223a22443630227d00"
    )
    packed = bytes(compress(Codec.ZSTD, section))
    assert packed == bytes.fromhex("28b52ffd0058c80100") + section + bytes.fromhex("010000")


def test_zstd_of_several_frames() -> None:
    packed = bytes(compress(Codec.ZSTD, b"tide")) + bytes(compress(Codec.ZSTD, b"log"))
    assert bytes(decompress(Codec.ZSTD, packed)) == b"tidelog"


def test_zstd_before_v2() -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        compress(Codec.ZSTD, b"x", magic=1)


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_impossible_limits(limit: int) -> None:
    with pytest.raises(InvalidArgumentError, match="limit"):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"x"), limit_bytes=limit)


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_exact(codec: Codec) -> None:
    """Data as large as the bound passes, one byte more does not; the error says so."""
    data = os.urandom(1000) + bytes(50_000)
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, limit_bytes=len(data))) == data
    with pytest.raises(
        DecompressionError,
        match=rf"{codec.name.lower()} block decompresses to more than the limit.* at most {len(data) - 1} bytes",
    ):
        decompress(codec, packed, limit_bytes=len(data) - 1)


def bomb(codec: Codec, size: int = 64 * MIB) -> bytes:
    """Return a small block that decompresses to `size` zeros."""
    if codec is Codec.GZIP:
        compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join([compressor.compress(bytes(MIB)) for _ in range(size // MIB)]) + compressor.flush()
    return bytes(compress(codec, bytes(size)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_fails_at_the_bound_with_memory_flat(codec: Codec) -> None:
    packed = bomb(codec)
    limit = 4 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="decompresses to more than the limit") as caught:
            decompress(codec, packed, limit_bytes=limit, path="a.log", position=99)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * limit
    assert (caught.value.path, caught.value.position) == ("a.log", 99)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_in_a_batch(codec: Codec) -> None:
    """The bound reaches the reader of records; the default one lets a 64 MiB batch of zeros pass on to the record checks."""
    section = bomb(codec, 64 * MIB)
    batch = raw_batch_v2(section, 1, attributes=codec)
    with pytest.raises(DecompressionError, match="decompresses to more than the limit"):
        list(iter_records(header_of(batch), batch, limit_bytes=MIB))
    assert DEFAULT_DECOMPRESSION_LIMIT_BYTES > 64 * MIB


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [1, 2])
def test_damage_is_told_with_its_place(codec: Codec, magic: int) -> None:
    if codec is Codec.ZSTD and magic < 2:
        return
    records = simple_records(50)
    batch = build_batch_v2(records, codec=codec) if magic == 2 else build_message_set(records, 1, codec=codec)
    header = header_of(batch)._replace(position=4711)
    start = 61 if magic == 2 else 34
    batch[start : start + 20] = b"\x00" * 20
    with pytest.raises(DecompressionError, match=rf"a {codec.name.lower()} block is damaged.*\(a\.log at byte 4711\)"):
        list(iter_records(header, batch, check_crc=False, path="a.log"))


@pytest.mark.parametrize("codec", CODECS)
def test_cut_blocks(codec: Codec) -> None:
    """A block that is cut off is damaged. Only xerial frames may end inside, between blocks: less comes out then, not other."""
    data = SAMPLES["text"]
    packed = bytes(compress(codec, data))
    for cut in range(1, min(len(packed) - 1, 400)):
        try:
            found = bytes(decompress(codec, packed[:-cut]))
        except DecompressionError:
            continue
        assert codec is Codec.SNAPPY
        assert data.startswith(found)
        assert len(found) % (32 * 1024) == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_large_results_lie_in_memory_that_nobody_clears(codec: Codec) -> None:
    """To clear a hundred megabytes takes long, and no other thread runs meanwhile."""
    data = bytes(compression.SCRATCH_BYTES + 1)
    found = decompress(codec, compress(codec, data))
    assert isinstance(found, memoryview) and isinstance(found.obj, mmap.mmap) and found == data
