"""Compressed messages of v0 and v1 of every kind that is found in old logs, and of some that are not: wrappers by hand."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import encode_message

T = 1_700_000_000_000

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


class Wrapper(NamedTuple):
    """A compressed message, by what is special about it."""

    name: str
    data: bytes


def inside(*messages: tuple[int, int], is_nested: bool = False) -> bytes:
    """Return messages as (format, offset), to be compressed."""
    return b"".join(
        encode_message(
            magic,
            offset,
            T + 10 * number,
            b"key %d" % offset,
            b"value %d" % number if number % 3 else None,
            codec=Codec.GZIP if is_nested else Codec.NONE,
        )
        for number, (magic, offset) in enumerate(messages)
    )


def wrap(
    magic: int,
    offset: int,
    messages: bytes,
    codec: Codec = Codec.GZIP,
    *,
    timestamp: int = T + 90,
    timestamp_type: int = CREATE_TIME,
    value: bytes | None = None,
) -> bytes:
    """Return a wrapper around messages."""
    packed = bytes(compress(codec, messages, magic=magic)) if value is None else value
    return encode_message(magic, offset, timestamp, None, packed, codec=codec, timestamp_type=timestamp_type)


def wrappers() -> Iterator[Wrapper]:
    """Yield the wrappers that have messages of both formats, other offsets than they should, or older frames."""
    for codec in CODECS:
        for outer in (0, 1):
            for shape, messages in SHAPES.items():
                name = f"{codec.name.lower()} v{outer} around {shape}"
                yield Wrapper(name, wrap(outer, 28, inside(*messages), codec))
                if outer == 1:
                    yield Wrapper(f"{name}, by append", wrap(1, 28, inside(*messages), codec, timestamp_type=LOG_APPEND_TIME))
                    yield Wrapper(
                        f"{name}, as the cleaner of 0.10.0 wrote it",
                        wrap(1, 28, inside(*messages), codec, timestamp=-1, timestamp_type=LOG_APPEND_TIME),
                    )
    for outer in (0, 1):
        plain = inside((outer, 0), (outer, 1), (outer, 2))
        yield Wrapper(f"v{outer} at offset 0", wrap(outer, 0, plain))
        yield Wrapper(f"v{outer} at an offset below those inside", wrap(outer, 1, inside((outer, 2), (outer, 3))))
        yield Wrapper(f"v{outer} around nothing", wrap(outer, 2, b""))
        yield Wrapper(f"v{outer} without a value", encode_message(outer, 2, T, b"k", None, codec=Codec.GZIP))
        yield Wrapper(f"v{outer} around v2", wrap(outer, 2, plain[:16] + b"\x02" + plain[17:]))
        for nested in (0, 1):
            yield Wrapper(f"v{outer} around a compressed v{nested}", wrap(outer, 2, inside((nested, 2), is_nested=True)))
        yield Wrapper(f"v{outer}, a snappy block without a frame", wrap(outer, 2, b"", Codec.SNAPPY, value=raw_snappy(plain)))
        frame = {magic: bytes(compress(Codec.LZ4, plain, magic=magic)) for magic in (0, 1)}
        yield Wrapper(f"v{outer}, lz4 as v{1 - outer} has it", wrap(outer, 2, b"", Codec.LZ4, value=frame[1 - outer]))
        yield Wrapper(
            f"v{outer}, a gzip member after the other", wrap(outer, 2, b"", value=gzipped(plain[:40]) + gzipped(plain[40:]))
        )


SHAPES = {
    "v0, absolute": ((0, 21), (0, 26), (0, 28)),
    "v0, relative": ((0, 0), (0, 5), (0, 7)),
    "v1, absolute": ((1, 21), (1, 26), (1, 28)),
    "v1, relative": ((1, 0), (1, 5), (1, 7)),
    "v0 and v1": ((0, 0), (1, 1), (0, 2), (1, 3)),
    "v1 and v0": ((1, 0), (0, 1)),
}


def raw_snappy(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()
