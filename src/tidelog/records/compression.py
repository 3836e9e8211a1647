"""The codecs of a record batch, each with a bound on the decompressed size.

What Tidelog writes, as Kafka does, and what it can also read::

    codec   written                                            also read
    gzip    one member, zlib level 6                           several members
    snappy  xerial frame: 16-byte header, 32 KiB raw blocks    one raw snappy block without a frame
    lz4     frame of independent 64 KiB blocks, no checksums   any LZ4 frame; for message format v0 any header checksum
    zstd    one streamed frame, level 3 (v2 batches only)      several frames

Frames have Kafka's layout, byte for byte. The content of blocks depends on the libraries: gzip, lz4 and (since zstd 1.5.7) zstd
produce the same bytes as Kafka's Java libraries. snappy mostly does, and its output is equally valid.

LZ4 in message format v0: Kafka 0.8 and 0.9 included the magic number in the frame's header checksum, contrary to the LZ4 format.
Kafka still writes the checksum this way for v0, and ignores it when it reads v0. Tidelog does the same.

A compressed block does not reliably state its decompressed size, and a few kilobytes can claim gigabytes. The output buffer
therefore grows geometrically from a small multiple of the input, up to the bound. So a decompression bomb costs at most the bound
in memory, and damage loses at most the block itself.

This module is pure. Only `records/` calls it.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import TypeAlias

import cramjam

from tidelog.errors import DecompressedTooLargeError, DecompressionError, InvalidArgumentError, UnsupportedCompressionTypeError

Bytes: TypeAlias = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The compression codec of a batch's records: bits 0-2 of the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_DECOMPRESSION_LIMIT_BYTES = 1 << 30
"""1 GiB: enough for a batch that fills a segment of the default size, and below the 2 GiB limit of int32 positions.

Kafka bounds only the compressed size of a batch (max.message.bytes, 1 MiB by default), so legitimate batches may be a hundred
times larger when decompressed. Only decompression bombs come near this bound.
"""

MAX_DECOMPRESSION_LIMIT_BYTES = (1 << 31) - 1
"""Positions within a batch are int32, as in Kafka."""

_GZIP_MAGIC = b"\x1f\x8b\x08"
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")

# A snappy copy element yields at most 64 bytes from three, so a larger claim is false.
_SNAPPY_MAX_RATIO = 22

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"  # version 1, independent blocks; blocks of 64 KiB
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_UNCOMPRESSED_BIT = 0x80000000
_LZ4_END_MARK = b"\x00\x00\x00\x00"
_UINT32_LE = Struct("<I")

SCRATCH_BYTES = 8 << 20
"""The largest buffer, in bytes, that a `Scratch` keeps for reuse."""

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_ZSTD_PIECE_BYTES = 1 << 20

# cramjam's message if the output buffer is too small: the text of Rust's io::ErrorKind::WriteZero.
_OUTPUT_FULL = "failed to write whole buffer"


def decompress(
    codec: Codec,
    data: Bytes,
    *,
    magic: int = 2,
    limit_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES,
    scratch: Scratch | None = None,
    path: str | os.PathLike[str] | None = None,
    position: int | None = None,
) -> Bytes:
    """Decompress `data` to at most `limit_bytes`, and return the result.

    `magic` is the message format. Errors name `path`, and `position` of the batch. If `scratch` is given, the result is in its
    memory, and valid until its next use. Raises DecompressionError for damaged data, DecompressedTooLargeError if the result
    would exceed `limit_bytes`.
    """
    if codec is Codec.NONE:
        return data
    if not 0 < limit_bytes <= MAX_DECOMPRESSION_LIMIT_BYTES:
        raise InvalidArgumentError("the decompression limit is out of range", found=limit_bytes, expected="1 to 2147483647 bytes")
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit_bytes, scratch)
        if codec is Codec.GZIP:
            return _decompress_gzip(data, limit_bytes, scratch)
        if codec is Codec.LZ4:
            frame = _with_right_checksum(data) if magic == 0 else data
            return _decompress_growing(cramjam.lz4.decompress_into, frame, 4 * len(data), limit_bytes, scratch)
        return _decompress_growing(cramjam.zstd.decompress_into, data, 8 * len(data), limit_bytes, scratch)
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"a {codec.name.lower()} block is damaged: {error}", path=path, position=position) from None
    except _BeyondError as error:
        raise DecompressedTooLargeError(
            f"a {codec.name.lower()} block decompresses to more than the limit",
            path=path,
            position=position,
            found=str(error),
            expected=f"at most {limit_bytes} bytes",
        ) from None


class _BeyondError(Exception):
    """The data is larger than the bound. The text has the size, or a lower bound of it."""


class Scratch:
    """A reusable buffer for decompression, because touching fresh pages costs more than decompressing into them.

    A result is valid until the next use. Not thread-safe.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def size(self) -> int:
        """The allocated size."""
        return len(self._buffer)

    def room(self, size: int) -> memoryview:
        """Return `size` uninitialized bytes. A buffer of more than `SCRATCH_BYTES` is not kept for reuse."""
        if size > SCRATCH_BYTES:
            return _large_room(size)
        if size > len(self._buffer):
            self._buffer = bytearray(1 << (size - 1).bit_length())
        return memoryview(self._buffer)[:size]


def _large_room(size: int) -> memoryview:
    """Return memory that has not been cleared. Untouched pages cost nothing, and clearing 100 MB would block all threads."""
    return memoryview(mmap.mmap(-1, size))


def room(size: int, scratch: Scratch | None = None) -> bytearray | memoryview:
    """Return `size` bytes of memory for a result, from `scratch` if given."""
    if scratch is not None:
        return scratch.room(size)
    return bytearray(size) if size <= SCRATCH_BYTES else _large_room(size)


def _decompress_growing(
    decompress_into: Callable[[Bytes, Bytes], int], data: Bytes, guess_bytes: int, limit_bytes: int, scratch: Scratch | None
) -> Bytes:
    size = min(max(guess_bytes, 1024, 0 if scratch is None else scratch.size), limit_bytes)
    while True:
        out = room(size, scratch)
        try:
            count = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise
        else:
            if isinstance(out, memoryview):
                return out[:count]
            del out[count:]  # Give memory back if much of it was not needed.
            return out
        if size == limit_bytes:
            raise _BeyondError("more")
        del out  # Free this buffer before the next is allocated.
        size = min(size * 4, limit_bytes)


def _decompress_gzip(data: Bytes, limit_bytes: int, scratch: Scratch | None) -> Bytes:
    try:
        return _decompress_growing(cramjam.gzip.decompress_into, data, _gzip_guess(data), limit_bytes, scratch)
    except cramjam.DecompressionError:
        # Java ignores bytes after the last member unless they begin like a member.
        end = _gzip_end(data, limit_bytes)
        if end == len(data):
            raise
        members = memoryview(data)[:end]
        return _decompress_growing(cramjam.gzip.decompress_into, members, _gzip_guess(members), limit_bytes, scratch)


def _gzip_end(data: Bytes, limit_bytes: int) -> int:
    """Return the end of the consecutive gzip members in `data`, or the end of `data` if a member is damaged or too large."""
    at = 0
    left = limit_bytes
    while True:
        member, rest = zlib.decompressobj(wbits=31), bytes(memoryview(data)[at:])
        try:
            while not member.eof:
                out = member.decompress(rest, 1 << 20)
                rest = member.unconsumed_tail
                left -= len(out)
                if left < 0 or not (out or member.eof):
                    return len(data)
        except zlib.error:
            return len(data)
        at = len(data) - len(member.unused_data)
        if bytes(memoryview(data)[at : at + 3]) != _GZIP_MAGIC:
            return at


def _gzip_guess(data: Bytes) -> int:
    """Return the size in the last four bytes of gzip data, if it is plausible. The size may be wrong, or may be the size of only
    the last of several members.
    """
    claimed: int = _UINT32_LE.unpack_from(data, len(data) - 4)[0] if len(data) >= 18 else 0
    return claimed if 0 < claimed <= 64 * len(data) else 8 * len(data)


def _decompress_snappy(data: memoryview, limit_bytes: int, scratch: Scratch | None) -> Bytes:
    blocks = [data] if data[:8] != _XERIAL_MAGIC else _xerial_blocks(data)
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    for block, size in zip(blocks, sizes, strict=True):
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise cramjam.DecompressionError(f"{len(block)} bytes cannot decompress to the {size} bytes that they claim")
    total = sum(sizes)
    if total > limit_bytes:
        raise _BeyondError(f"{total} bytes")
    out = room(total, scratch)
    view = memoryview(out)
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, view[at : at + size])
        at += size
    return out


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    index = len(_XERIAL_HEADER)
    while index < len(data):
        if len(data) - index < 4:
            raise cramjam.DecompressionError("the block size is truncated")
        (size,) = _INT32.unpack_from(data, index)
        index += 4
        if size < 0 or size > len(data) - index:
            raise cramjam.DecompressionError("the block is truncated")
        blocks.append(data[index : index + size])
        index += size
    if index > len(data):
        raise cramjam.DecompressionError("the frame header is truncated")
    return blocks


def compress(codec: Codec, data: Bytes, level: int | None = None, *, magic: int = 2) -> Bytes:
    """Return `data` compressed as Kafka does for message format `magic`. `level` has the meaning of Kafka's compression.*.level.

    Raises UnsupportedCompressionTypeError for zstd before v2.
    """
    if codec is Codec.NONE:
        return data
    if codec is Codec.GZIP:
        return _compress_gzip(data, _GZIP_LEVEL if level is None else level)
    if codec is Codec.SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec is Codec.LZ4:
        return _compress_lz4(memoryview(data), level, magic)
    if magic < 2:
        raise UnsupportedCompressionTypeError(f"message format v{magic} does not support zstd")
    return _compress_zstd(memoryview(data), _ZSTD_LEVEL if level is None else level)


def _compress_gzip(data: Bytes, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = compressor.compress(data) + compressor.flush()
    # As java.util.zip.GZIPOutputStream writes it: no name, no time, unknown operating system.
    trailer = _UINT32_LE.pack(zlib.crc32(data)) + _UINT32_LE.pack(len(data) & 0xFFFFFFFF)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + body + trailer


def _compress_snappy(data: memoryview) -> bytes:
    parts: list[Bytes] = [_XERIAL_HEADER]
    for index in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(data[index : index + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: memoryview, level: int | None, magic: int) -> bytes:
    checksum = xxh32((_LZ4_MAGIC if magic == 0 else b"") + _LZ4_DESCRIPTOR) >> 8 & 0xFF
    parts: list[Bytes] = [_LZ4_MAGIC, _LZ4_DESCRIPTOR, bytes((checksum,))]
    for index in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[index : index + _LZ4_BLOCK_BYTES]
        if level is None:
            packed = memoryview(cramjam.lz4.compress_block(block, store_size=False))
        else:
            packed = memoryview(cramjam.lz4.compress_block(block, store_size=False, mode="high_compression", compression=level))
        if len(packed) < len(block):
            parts += (_UINT32_LE.pack(len(packed)), packed)
        else:
            parts += (_UINT32_LE.pack(len(block) | _LZ4_UNCOMPRESSED_BIT), block)
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _compress_zstd(data: memoryview, level: int) -> bytes:
    # Kafka writes a stream of unknown size, which it flushes and then closes, so an empty block ends the stream. Compress in
    # pieces, because each piece is copied while no other thread runs.
    compressor = cramjam.zstd.Compressor(level)
    for index in range(0, len(data), _ZSTD_PIECE_BYTES):
        compressor.compress(bytes(data[index : index + _ZSTD_PIECE_BYTES]))
    return bytes(compressor.flush()) + bytes(compressor.finish())


def _with_right_checksum(frame: Bytes) -> Bytes:
    """Return an LZ4 frame of message format v0 with the header checksum that the LZ4 format requires."""
    if len(frame) < 7 or bytes(frame[:4]) != _LZ4_MAGIC:
        return frame
    flags = frame[4]
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)  # content size, dictionary id
    if len(frame) <= end:
        return frame
    repaired = bytearray(frame)
    repaired[end] = xxh32(bytes(frame[4:end])) >> 8 & 0xFF
    return repaired


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """Return XXH32 (seed 0) of fewer than 16 bytes. An LZ4 frame header is never longer."""
    if len(data) >= 16:
        raise InvalidArgumentError("xxh32 is only for frame headers", found=f"{len(data)} bytes", expected="less than 16")
    value = _PRIME_5 + len(data)
    index = 0
    while index + 4 <= len(data):
        value = (value + int.from_bytes(data[index : index + 4], "little") * _PRIME_3) & _MASK
        value = (value << 17 | value >> 15) * _PRIME_4 & _MASK
        index += 4
    for byte in data[index:]:
        value = (value + byte * _PRIME_5) & _MASK
        value = (value << 11 | value >> 21) * _PRIME_1 & _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16
