"""Decodes columns of Kafka's internal topics (`records`). The resulting columns are JSON text, because each type of record has
different fields.
"""

from __future__ import annotations

import json

import pyarrow as pa

from tidelog.decoding.decoder import SLICE_ROWS, Decoded, Decoder, as_binary, slices, with_failures
from tidelog.decoding.internal.records import KEYLESS, InternalRecords
from tidelog.errors import InvalidArgumentError
from tidelog.model import KAFKAS_TOPICS

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class InternalDecoder(Decoder):
    """Decodes keys or values of an internal topic. If `reads_keys` is true, a column of values is a struct of `key` and `value`.

    Raises InvalidArgumentError if the topic is not internal.
    """

    name = "internal"
    type = pa.string()

    def __init__(self, topic: str, side: str) -> None:
        if topic not in KAFKAS_TOPICS:
            expected = ", ".join(sorted(KAFKAS_TOPICS))
            raise InvalidArgumentError(
                "the format 'internal' is only for Kafka's internal topics", found=topic, expected=expected
            )
        self.reads_keys = side == "value" and topic not in KEYLESS
        self._is_key = side == "key"
        self._records = InternalRecords(topic)

    def decode(self, column: pa.Array) -> Decoded:
        keys = as_binary(column.field("key")) if self.reads_keys else None
        column = as_binary(column.field("value") if self.reads_keys else column)
        failed: set[int] = set()
        texts: list[str | None] = []
        for first, part in slices(column, failed):
            values = part.to_pylist()
            if self._is_key:
                found = list(map(self._records.key, values))
            else:
                of_slice = [None] * len(values) if keys is None else keys.slice(first, SLICE_ROWS).to_pylist()
                found = list(map(self._records.value, of_slice, values))
            texts += [None if one is None else _to_json(one) for one in found]
            failed.update(first + row for row, one in enumerate(found) if one is None and values[row] is not None)
        return with_failures(column, pa.array(texts, pa.string()), failed)

    display = decode

    @property
    def fault(self) -> str:
        return "of an unknown version, or malformed"
