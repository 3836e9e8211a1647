"""Decodes MessagePack. msgspec is the fastest of the libraries (`bench/cli/decoding_bench.py`). It allocates nothing if a value
declares more elements than its remaining bytes can contain.

Small values are decoded in one call of the library, each followed by a random marker. If a marker is not where it should be, each
value is decoded alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidelog.decoding.object_decoder import ObjectDecoder
from tidelog.extras import imported_from

_PACKED_MARK: Final = b"\xcf" + os.urandom(8)
"""The marker as MessagePack: a random unsigned integer of 64 bits."""

_MARK: Final = int.from_bytes(_PACKED_MARK[1:], "big")

SMALL_BYTES: Final = 4096
"""Values up to this size are decoded together. Larger values are not, because a count in one value may claim the bytes of all
values after it.
"""


class MsgpackDecoder(ObjectDecoder):
    """Decodes MessagePack. Timestamps (extension -1) become times, other extensions become bytes."""

    name = "msgpack"

    def __init__(self, type_: pa.DataType | None = None) -> None:
        with imported_from("decode", "msgspec"):
            import msgspec
        self._decode = msgspec.msgpack.Decoder(ext_hook=lambda _, data: bytes(data)).decode
        super().__init__(self._decode, type_)
        self.undecodable = (*ObjectDecoder.undecodable, msgspec.MsgspecError)

    def load_all(self, values: Sequence[bytes | None]) -> list[object]:
        given = [value for value in values if value is not None]
        if len(given) < len(values) or max(map(len, given), default=0) > SMALL_BYTES:
            return super().load_all(values)
        # 0xDD begins a list with a 32-bit count.
        found: list[object] = self._decode(b"\xdd" + (2 * len(given)).to_bytes(4, "big") + _PACKED_MARK.join([*given, b""]))
        if found[1::2] != [_MARK] * len(given):
            raise ValueError("a value is longer or shorter than it declares")
        return found[::2]
