"""Makes decoders from schemas, which come from files or a registry.

| file | format |
|---|---|
| `.avsc` | avro |
| `.proto`; or, with any other extension, a descriptor set: `protoc --descriptor_set_out --include_imports` | protobuf |
| a JSON Schema | json |

`FILE#Message` names the Protobuf message. Without a name, the first message of the file is used.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from tidelog.decoding.decoder import Decoder
    from tidelog.decoding.registry import Schema
    from tidelog.decoding.schemaful.avro_schema import AvroSchema
    from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile

KINDS: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""The formats that have schemas, and the registry's names for them."""

MAX_FILE_BYTES: Final = 16 << 20


def schema_file(text: str, name: str) -> Schema:
    """Read the schema `FILE` or `FILE#Message` of a format. Raises NotFoundError, InvalidArgumentError."""
    from tidelog.decoding.registry import Schema

    if name not in KINDS:
        raise InvalidArgumentError(f"{name} has no schemas, so {text} would have no effect", expected=", ".join(KINDS))
    path, _, message = text.partition("#") if name == "protobuf" else (text, "", "")
    data = read_schema_file(path)
    try:
        content = "" if name == "protobuf" else data.decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("the schema is not UTF-8", path=path) from None
    return Schema(KINDS[name], content, path=path, message=message or None)


def read_schema_file(path: str) -> bytes:
    """Return the bytes of a schema file. Raises NotFoundError, InvalidArgumentError."""
    try:
        if Path(path).stat().st_size > MAX_FILE_BYTES:
            raise InvalidArgumentError("the schema is larger than 16 MiB", path=path)
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read the schema: {error.strerror}", path=path) from None


def make_decoder(schema: Schema, indexes: tuple[int, ...] = (), reader: Schema | None = None) -> tuple[Decoder, str | None]:
    """Return a decoder for values written with `schema`, and the name of the record or message that it decodes. For Protobuf,
    `indexes` determine the message. If `reader` is given, values are converted to that schema.

    Raises InvalidArgumentError for a malformed schema.
    """
    if schema.kind == "AVRO":
        from tidelog.decoding.schemaful.avro_evolution import EvolvedDecoder, evolution
        from tidelog.decoding.schemaful.avro_values import AvroDecoder

        writer = _avro(schema)
        target = writer if reader is None else _avro(reader)
        if target is writer:
            return AvroDecoder(writer), writer.name
        evolved = evolution(writer, target)
        if evolved is not None:
            return EvolvedDecoder(AvroDecoder(writer), evolved, target.type), writer.name
        return AvroDecoder(writer, target), writer.name
    if schema.kind == "JSON":
        from tidelog.decoding.json_values import JsonDecoder
        from tidelog.decoding.schemaful.json_schema import json_schema_type

        one = reader or schema
        return JsonDecoder(json_schema_type(one.text, one.references, path=one.path)), None
    if schema.kind == "PROTOBUF":
        from tidelog.decoding.schemaful.protobuf_values import ProtobufDecoder

        file = _protobuf(schema)
        descriptor = file.by_indexes(indexes) if indexes else file.by_name(schema.message)
        if reader is not None:
            descriptor = _protobuf(reader).by_name(reader.message or descriptor.full_name)
        return ProtobufDecoder(descriptor), descriptor.full_name
    raise InvalidArgumentError("unknown schema type", found=schema.kind, expected=", ".join(KINDS.values()))


@lru_cache(maxsize=256)
def _avro(schema: Schema) -> AvroSchema:
    from tidelog.decoding.schemaful.avro_schema import AvroSchema

    return AvroSchema(schema.text, [text for _, text in schema.references], path=schema.path)


@lru_cache(maxsize=256)
def _protobuf(schema: Schema) -> ProtobufFile:
    from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile, compiled, compiled_file, serialized

    if schema.path is None:
        found = serialized([*(text for _, text in schema.references), schema.text])
        if found is not None:
            return ProtobufFile(found)
        return ProtobufFile(compiled(schema.text, schema.references))
    if schema.path.endswith(".proto"):
        return ProtobufFile(compiled_file(schema.path), path=schema.path)
    return ProtobufFile(Path(schema.path).read_bytes(), path=schema.path)
