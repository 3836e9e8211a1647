"""Decodes keys and values into typed columns, for the options `decode` and `keyDecode`.

The driver determines the types once: from the user's DDL, or from the schema file, or from the newest schema of the subject
`TOPIC-value` (`TOPIC-key`) in the registry. All tasks decode into these types, so a schema that is registered later does not
change a running query.

A value that cannot be decoded is null. Its bytes are in the column `valueUndecoded`, and each task logs the number of such
values. With `mode` FAILFAST, such a value raises an error that names the record.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from tidelog.decoding.decodings import Decodings
from tidelog.decoding.schemas import KINDS, make_decoder, schema_file
from tidelog.errors import InvalidArgumentError, InvalidRecordError
from tidelog.extras import imported_from
from tidelog.spark.columns import scan_columns, spark_schema
from tidelog.spark.decode_options import OPTIONS_OF_SIDES, DecodeOptions, column_ddl
from tidelog.spark.options import ReadOptions

with imported_from("spark", "PySpark"):
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
    from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

if TYPE_CHECKING:
    from tidelog.decoding.registry import Schema
    from tidelog.decoding.topic_decoding import TopicDecoding

PLAIN_FORMATS = ("utf8", "hex", "internal")
"""Formats whose columns are always text."""

MAX_PRECISION = 38
"""The most digits of Spark's decimals."""

_log = logging.getLogger("tidelog.spark")


Readers: TypeAlias = "dict[str, dict[str, Schema]]"
"""The registry's newest schemas: for `key` and `value`, a schema by topic."""


def newest_schemas(options: ReadOptions) -> Readers:
    """Return the registry's newest schemas for columns that have neither DDL nor a schema file. Raises InvalidArgumentError for
    wrong registry properties, SchemaRegistryError.
    """
    decode = options.decode
    found: Readers = {}
    if decode is None:
        return found
    sides = [side for side in decode.formats if side in options.columns and decode.formats[side] in KINDS]
    sides = [side for side in sides if side not in decode.files and side not in decode.ddl]
    if not sides:
        return found
    # This import takes 10 ms, most of it http.client, in each Python process.
    from tidelog.decoding.registry import SchemaRegistry

    registry = SchemaRegistry.from_environment(None, decode.registry)
    if registry is None:
        return found
    for topic in _topics(options):
        for side in sides:
            schema = registry.latest(f"{topic}-{side}")
            if schema is not None and schema.kind == KINDS[decode.formats[side]]:
                found.setdefault(topic, {})[side] = schema
    return found


def _topics(options: ReadOptions) -> Sequence[str]:
    return options.topics or list(dict.fromkeys(one.topic for one in options.assigned or ()))


def typed_schema(options: ReadOptions, readers: Readers) -> StructType | str:
    """Return the schema of a DataFrame, with the types of decoded columns. If the user gave DDL, return the schema as DDL,
    because only Spark parses DDL.

    Raises InvalidArgumentError if a type is unknown.
    """
    if options.decode is None:
        return spark_schema(options.columns)
    found = {
        side: _own_type(options, options.decode, side, readers)
        for side in options.decode.formats
        if side in options.columns and side not in options.decode.ddl
    }
    schema = spark_schema(options.columns, found)
    if not options.decode.ddl:
        return schema
    given = {side: column_ddl(text) for side, text in options.decode.ddl.items()}
    return ", ".join(f"{one.name} {given.get(one.name) or _ddl(one.dataType)}" for one in schema)


def _own_type(options: ReadOptions, decode: DecodeOptions, side: str, readers: Readers) -> DataType:
    """Return the type that the format or its schema determines. All topics must have the same type."""
    found: dict[str, pa.DataType] = {}
    for topic in _topics(options) or [""]:
        reader = readers.get(topic, {}).get(side)
        if reader is not None:
            found[topic] = make_decoder(reader)[0].type
        elif side in decode.files and decode.formats[side] in KINDS:
            # With a registry, too, the column has the type of the file.
            found[topic] = make_decoder(schema_file(decode.files[side], decode.formats[side]))[0].type
        elif decode.formats[side] in PLAIN_FORMATS or side in decode.files:
            found[topic] = _decodings(decode, [side]).topic(topic).decoders[side].type
        else:
            format_option, schema_option, _ = OPTIONS_OF_SIDES[side]
            raise InvalidArgumentError(
                f"option {format_option} {decode.formats[side]}: the type of the column {side} is unknown"
                + (f": the registry has no subject {topic}-{side}" if topic and decode.registry else ""),
                expected=f"the option {schema_option} with a type, e.g. id BIGINT, carrier STRING, or a schema file"
                + ("" if decode.registry else "; or the option schema.registry.url"),
            )
    if len(set(found.values())) > 1:
        raise InvalidArgumentError(
            f"the {side}s of the topics have different types: load one topic at a time", found=", ".join(found)
        )
    return from_arrow_type(_supported(next(iter(found.values()))), prefer_timestamp_ntz=True)


def _supported(kind: pa.DataType) -> pa.DataType:
    """Return a type that Spark supports and that can hold all values of `kind`."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_supported(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_supported(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_supported(kind.key_type), _supported(kind.item_type))
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_decimal(kind) and kind.precision > MAX_PRECISION:
        return pa.string()
    return _SIGNED.get(kind, kind)


_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def _ddl(kind: DataType) -> str:
    """Return a type as Spark DDL, with all names quoted."""
    if isinstance(kind, StructType):
        fields = ("`" + one.name.replace("`", "``") + "`: " + _ddl(one.dataType) for one in kind)
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()


def _decodings(decode: DecodeOptions, sides: Iterable[str]) -> Decodings:
    texts = {side: [decode.formats[side]] if side in sides else [] for side in OPTIONS_OF_SIDES}
    schemas = [f"*.{side}={file}" for side, file in decode.files.items() if side in sides]
    return Decodings.parse(texts["value"], key_texts=texts["key"], schemas=schemas, registry=decode.registry or None)


def typed_columns(schema: StructType, options: ReadOptions, readers: Readers | None = None) -> TypedColumns:
    """Return the columns of a DataFrame with this schema. Raises InvalidArgumentError if the schema does not fit the options."""
    decode = options.decode
    sides = () if decode is None else tuple(side for side in decode.formats if side in options.columns)
    given = {one.name: one.dataType for one in schema if one.name in sides}
    expected = spark_schema(options.columns, given)
    if [(one.name, one.dataType) for one in schema] != [(one.name, one.dataType) for one in expected]:
        raise InvalidArgumentError(
            "format tidelog has a fixed schema; choose columns with the option columns, and types of keys and values with decode",
            found=schema.simpleString(),
            expected=expected.simpleString(),
        )
    types = {}
    for side, kind in given.items():
        if not _is_nullable(kind):
            raise InvalidArgumentError(
                f"column {side}: every type must be nullable, because a value may lack any field",
                found="NOT NULL",
                expected="nullable types",
            )
        if decode is not None and decode.formats[side] in PLAIN_FORMATS and kind != StringType():
            raise InvalidArgumentError(
                f"column {side}: {decode.formats[side]} decodes to text", found=kind.simpleString(), expected="string"
            )
        types[side] = to_arrow_type(kind, timezone="UTC")
    return TypedColumns(options.columns, decode, types, readers or {})


def _is_nullable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(one.nullable and _is_nullable(one.dataType) for one in kind)
    if isinstance(kind, ArrayType):
        return kind.containsNull and _is_nullable(kind.elementType)
    return not isinstance(kind, MapType) or (kind.valueContainsNull and _is_nullable(kind.valueType))


@dataclass(frozen=True)
class TypedColumns:
    """The columns of a DataFrame: the columns of a scan, with keys and values decoded if the options say so. Picklable."""

    columns: tuple[str, ...]
    decode: DecodeOptions | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The Arrow types of the decoded columns, by `key` and `value`."""
    readers: Readers = field(default_factory=dict)

    def names_to_read(self) -> tuple[str, ...]:
        """Return the columns of a scan that must be read for these columns."""
        undecoded = [names[2] for names in OPTIONS_OF_SIDES.values()]
        names = [*scan_columns([name for name in self.columns if name not in undecoded])]
        if self.types and self.decode is not None:
            names += ["topic", *(["partition", "offset"] if self.decode.fails_fast else [])]
            names += ["key"] if self.decode.formats.get("value") == "internal" else []
            names += ["headers"] if self.decode.registry else []
        return tuple(dict.fromkeys(names))

    def decoded(self, batches: Iterator[pa.RecordBatch], where: object) -> Iterator[pa.RecordBatch]:
        """Decode a scan's batches, which have the columns `names_to_read`. Yield batches with the columns `columns`, in order.
        Then log the number of values that could not be decoded; `where` names what was read.

        Raises InvalidRecordError for a value that cannot be decoded, with `mode` FAILFAST.
        """
        if not self.types or self.decode is None:
            yield from batches
            return
        decodings = _decodings(self.decode, self.types)
        by_topic: dict[str, TopicDecoding] = {}
        names = scan_columns(self.columns)
        for batch in batches:
            if not batch.num_rows:
                continue
            topic = batch.column("topic")[0].as_py()
            if topic not in by_topic:
                by_topic[topic] = decodings.topic(topic, self.types, self.readers.get(topic, {}))
            found = by_topic[topic].decode(batch)
            if self.decode.fails_fast and by_topic[topic].undecoded.total():
                raise _failure(by_topic[topic], found)
            yield self._cast(found.select(names))
        undecoded = sum((decoding.undecoded for decoding in by_topic.values()), Counter[str]())
        for side, count in undecoded.items():
            column = OPTIONS_OF_SIDES[side][2]
            seen = f"their bytes are in {column}" if column in self.columns else f"the column {column} would have their bytes"
            _log.warning("%s: %d %ss are null because they are not %s: %s", where, count, side, self.decode.formats[side], seen)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Cast the batch to the exact types of the DataFrame, because a decoder may return timestamps in milliseconds."""
        for side, kind in self.types.items():
            if batch.column(side).type != kind:
                number = batch.schema.get_field_index(side)
                batch = batch.set_column(number, side, batch.column(side).cast(kind))
        return batch


def _failure(decoding: TopicDecoding, batch: pa.RecordBatch) -> InvalidRecordError:
    """Return an error that names the first record of a batch that could not be decoded."""
    import pyarrow.compute as pc

    from tidelog.decoding.topic_decoding import UNDECODED

    side = next(side for side, count in decoding.undecoded.items() if count)
    row = pc.index(batch.column(side + UNDECODED).is_valid(), True).as_py()
    partition, offset = batch.column("partition")[row].as_py(), batch.column("offset")[row].as_py()
    return InvalidRecordError(
        f"{decoding.topic}-{partition} offset {offset}: the {side} is {decoding.decoders[side].fault}; "
        f"mode PERMISSIVE returns its bytes in {OPTIONS_OF_SIDES[side][2]}"
    )
