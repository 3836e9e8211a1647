"""Decodes MessagePack. Counts that are larger than the value itself are rejected before anything is allocated.

Small values are decoded in one call of the library, each followed by a random mark. If a mark is not in its place, each value is
decoded alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from tidelog.decoding.object_decoder import ObjectDecoder
from tidelog.extras import imported_from

_MARK: Final = os.urandom(16)

_PACKED_MARK: Final = bytes([0xC4, len(_MARK)]) + _MARK

SMALL_BYTES: Final = 4096
"""Values up to this size are decoded together, because the largest of them is the limit of all their counts."""


class MsgpackDecoder(ObjectDecoder):
    """Decodes MessagePack. Timestamps (extension -1) become times, other extensions become bytes."""

    name = "msgpack"

    def __init__(self, type_: pa.DataType | None = None) -> None:
        with imported_from("decode", "msgpack"):
            import msgpack
        options = {"timestamp": 3, "strict_map_key": False, "ext_hook": lambda _, data: data}
        super().__init__(partial(msgpack.unpackb, **options), type_)
        self._unpacker = partial(msgpack.Unpacker, **options)
        self.undecodable = (*ObjectDecoder.undecodable, msgpack.UnpackException)

    def load_all(self, values: Sequence[bytes | None]) -> list[object]:
        given = [value for value in values if value is not None]
        most = max(map(len, given), default=0)
        if most > SMALL_BYTES or len(given) < len(values):
            return super().load_all(values)
        body = _PACKED_MARK.join([*given, b""])
        most = max(most, len(_MARK))
        limits = {f"max_{kind}_len": most for kind in ("str", "bin", "array", "map", "ext")}
        unpacker = self._unpacker(max_buffer_size=len(body), **limits)
        unpacker.feed(body)
        found = list(unpacker)
        if len(found) != 2 * len(given) or found[1::2] != [_MARK] * len(given):
            raise ValueError("a value is longer or shorter than it declares")
        return found[::2]
