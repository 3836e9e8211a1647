"""Decodes MessagePack. Counts that are larger than the value itself are rejected before anything is allocated."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from tidelog.decoding.object_decoder import ObjectDecoder
from tidelog.extras import imported_from


class MsgpackDecoder(ObjectDecoder):
    """Decodes MessagePack. Timestamps (extension -1) become times, other extensions become bytes."""

    name = "msgpack"

    def __init__(self, type_: pa.DataType | None = None) -> None:
        with imported_from("decode", "msgpack"):
            import msgpack
        unpack = partial(msgpack.unpackb, timestamp=3, strict_map_key=False, ext_hook=lambda _, data: data)
        super().__init__(unpack, type_)
        self.undecodable = (*ObjectDecoder.undecodable, msgpack.UnpackException)
