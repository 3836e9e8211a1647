"""Decodes Protobuf messages with Google's library, and collects their fields column by column. The messages of a slice are parsed
as the elements of one message (`protobuf_rows`), or one by one if that fails.

| Protobuf | Arrow |
|---|---|
| scalars | the same types; enums are strings: the value's name, or its number if it has no name |
| message, repeated, map | struct, list, map |
| optional, oneof, message | null if it is not set |
| google.protobuf.Timestamp, wrappers (`Int64Value`, …) | timestamp in microseconds with UTC; the wrapped type, or null |
| Struct, Value, ListValue, messages without fields, messages that contain themselves | string: JSON |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from tidelog.decoding.decoder import Decoded, Decoder, as_binary, slices, with_failures
from tidelog.decoding.json_text import json_texts
from tidelog.decoding.schemaful.protobuf_rows import ProtobufRows
from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from

MAX_FIELDS: Final = 10_000
"""The most fields of a message, including nested fields."""

MAX_CELLS: Final = 4_000_000
"""The most cells of a list: its number of elements multiplied by the number of fields in each. A larger list is not decoded,
because an element may take only two bytes.
"""

_SCALARS: Final = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.uint64(),
    5: pa.int32(),
    6: pa.uint64(),
    7: pa.uint32(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.uint32(),
    14: pa.string(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
"""Arrow types by the numbers of FieldDescriptorProto.Type."""
_ENUM, _GROUP, _MESSAGE = 14, 10, 11
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})

Gather = Callable[[Sequence[Any]], pa.Array]
"""Makes a column from field values or messages. None becomes null."""


class ProtobufDecoder(Decoder):
    """Decodes messages of one type. `descriptor` comes from `protobuf_schema.ProtobufFile`."""

    name = "protobuf"

    def __init__(self, descriptor: Any) -> None:
        with imported_from("decode", "protobuf"):
            from google.protobuf import json_format, message, message_factory
        self.message_class = message_factory.GetMessageClass(descriptor)
        self._rows = ProtobufRows(descriptor)
        self._malformed = (message.DecodeError, ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException)
        self._to_json = partial(json_format.MessageToJson, preserving_proto_field_name=True, indent=None)
        self._fields = 0
        self.type, self._gather = self._message(descriptor, ())
        self._unknown = 0

    def decode(self, column: pa.Array) -> Decoded:
        column = as_binary(column)
        failed: set[int] = set()
        chunks = [self._slice(first, values.to_pylist(), failed) for first, values in slices(column, failed)]
        return with_failures(column, pa.concat_arrays(chunks) if chunks else pa.nulls(0, self.type), failed)

    def display(self, column: pa.Array) -> Decoded:
        decoded = self.decode(column)
        return Decoded(json_texts(decoded.column), decoded.undecoded)

    def notices(self) -> list[str]:
        return [f"{self._unknown:,} messages have fields that the schema lacks; they were left out"] if self._unknown else []

    def _slice(self, first: int, values: Sequence[bytes | None], failed: set[int]) -> pa.Array:
        parse = self.message_class.FromString
        given = [value for value in values if value is not None]
        messages: list[Any] = []
        has_all = False  # Whether it is certain that the schema has all fields of the values.
        try:
            messages, has_all = self._rows.parse(given)
            if len(given) < len(values):
                found = iter(messages)
                messages = [None if value is None else next(found) for value in values]
        except self._malformed:
            for row, value in enumerate(values, first):
                try:
                    messages.append(None if value is None else parse(value))
                except self._malformed:
                    messages.append(None)
                    failed.add(row)
        try:
            gathered = self._gather(messages)
        except self._malformed:
            gathered = pa.concat_arrays([self._alone(row, one, failed) for row, one in enumerate(messages, first)])
        if not has_all:
            self._count_unknown(messages, values)
        return gathered

    def _count_unknown(self, messages: Sequence[Any], values: Sequence[bytes | None]) -> None:
        """Remove unknown fields from the messages, and count the messages that had any: their encoding becomes shorter."""
        given = [one for one in messages if one is not None]
        written = [value for one, value in zip(messages, values, strict=True) if one is not None and value is not None]
        deque(map(self.message_class.DiscardUnknownFields, given), maxlen=0)
        sizes = list(map(self.message_class.ByteSize, given))
        if sizes != list(map(len, written)):
            # A different encoding of the same fields may have a different size.
            parse = self.message_class.FromString
            self._unknown += sum(
                size != len(value) and size != parse(value).ByteSize() for size, value in zip(sizes, written, strict=True)
            )

    def _alone(self, row: int, message: Any, failed: set[int]) -> pa.Array:
        try:
            return self._gather([message])
        except self._malformed:
            failed.add(row)
            return pa.nulls(1, self.type)

    def _message(self, descriptor: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, Gather]:
        """Return the type of a column of messages, and the function that makes the column."""
        name = descriptor.full_name
        if name == _TIMESTAMP:
            kind = pa.timestamp("us", tz="UTC")
            return kind, lambda messages: pa.array(
                [None if one is None else one.seconds * 1_000_000 + one.nanos // 1000 for one in messages], kind
            )
        if name in _WRAPPERS:
            kind = _SCALARS[descriptor.fields[0].type]
            return kind, lambda messages: pa.array([None if one is None else one.value for one in messages], kind)
        if name in outer or name in _JSON or not descriptor.fields:
            return pa.string(), lambda messages: pa.array(
                [None if one is None else self._to_json(one) for one in messages], pa.string()
            )
        self._fields += len(descriptor.fields)
        if self._fields > MAX_FIELDS:
            raise InvalidArgumentError(f"a Protobuf message has more than {MAX_FIELDS:,} fields", found=name)
        made = [(field.name, *self._field(field, (*outer, name))) for field in descriptor.fields]
        fields = [pa.field(field, kind) for field, kind, _ in made]
        empty = None if outer else self.message_class()

        def gather(messages: Sequence[Any]) -> pa.Array:
            mask = None
            if None in messages:
                stand_in = empty if empty is not None else next((one for one in messages if one is not None), None)
                mask = pa.array([one is None for one in messages], pa.bool_())
                if stand_in is None:
                    return pa.nulls(len(messages), pa.struct(fields))
                messages = [stand_in if one is None else one for one in messages]
            return pa.StructArray.from_arrays([one(messages) for _, _, one in made], fields=fields, mask=mask)

        return pa.struct(fields), gather

    def _field(self, field: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, Gather]:
        """Return the type of a field's column, and the function that makes this column from messages."""
        name, get = field.name, attrgetter(field.name)
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            keys, values = nested.fields_by_name["key"], nested.fields_by_name["value"]
            key_kind, key_gather = self._element(keys, outer)
            item_kind, item_gather = self._element(values, outer)
            kind = pa.map_(key_kind, item_kind)

            def gather_map(messages: Sequence[Any]) -> pa.Array:
                maps = list(map(get, messages))
                offsets = _offsets(maps, _width(item_kind))
                pairs = [(key, one[key]) for one in maps for key in one]
                items = item_gather([value for _, value in pairs])
                return pa.MapArray.from_arrays(offsets, key_gather([key for key, _ in pairs]), items).cast(kind)

            return kind, gather_map
        element_kind, element_gather = self._element(field, outer)
        if field.is_repeated:
            width = _width(element_kind)

            def gather_list(messages: Sequence[Any]) -> pa.Array:
                lists = list(map(get, messages))
                offsets = _offsets(lists, width)
                return pa.ListArray.from_arrays(offsets, element_gather(list(chain.from_iterable(lists))))

            return pa.list_(element_kind), gather_list
        if field.has_presence:
            return element_kind, lambda messages: element_gather([get(one) if one.HasField(name) else None for one in messages])
        return element_kind, lambda messages: element_gather(list(map(get, messages)))

    def _element(self, field: Any, outer: tuple[str, ...]) -> tuple[pa.DataType, Gather]:
        if field.type in (_MESSAGE, _GROUP):
            return self._message(field.message_type, outer)
        kind = _SCALARS[field.type]
        if field.type == _ENUM:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            return kind, lambda values: pa.array([None if one is None else names.get(one) or str(one) for one in values], kind)
        return kind, lambda values: pa.array(values, kind)


def _offsets(lists: Sequence[Any], width: int) -> pa.Array:
    offsets = [0, *accumulate(map(len, lists))]
    if offsets[-1] * width > MAX_CELLS:
        raise ValueError("too many elements")
    return pa.array(offsets, pa.int32())


def _width(kind: pa.DataType) -> int:
    """Return the number of cells of a value of this type, without the elements of lists."""
    if pa.types.is_struct(kind):
        return 1 + sum(_width(field.type) for field in kind)
    return 1
