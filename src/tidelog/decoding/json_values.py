"""Decodes JSON (RFC 8259). orjson is the fastest of the libraries that report malformed values one by one
(`bench/cli/decoding_bench.py`), and it limits nesting to 1,024 levels.
"""

from __future__ import annotations

import pyarrow as pa

from tidelog.decoding.arrow_json import ArrowJson
from tidelog.decoding.object_decoder import ObjectDecoder
from tidelog.extras import imported_from


class JsonDecoder(ObjectDecoder):
    """Decodes JSON. `display` returns the original text, unless it contains line breaks."""

    name = "json"

    def __init__(self, type_: pa.DataType | None = None) -> None:
        with imported_from("decode", "orjson"):
            import orjson
        super().__init__(orjson.loads, type_)
        self._dump = orjson.dumps
        self._arrow: ArrowJson | None = None

    def fix(self, kind: pa.DataType) -> None:
        super().fix(kind)
        self._arrow = None

    def column_without_objects(self, values: pa.Array, kind: pa.DataType) -> pa.Array | None:
        if self._arrow is None:
            self._arrow = ArrowJson(kind)
        return self._arrow.column_fast(values)

    def text(self, value: bytes) -> str:
        found = self.load(value)
        if b"\n" in value or b"\r" in value:
            return self._dump(found).decode()
        return value.decode().strip()
