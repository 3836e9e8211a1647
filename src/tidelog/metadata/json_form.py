"""Metadata records in the form of Kafka's DumpLogSegments: JSON with Kafka's names of records and fields.

::

    {"type": "TOPIC_RECORD", "version": 0, "data": {"name": "flights", "topicId": "8bHAiWzVQAKqTq3mJqq5sQ"}}

Ids and bytes are base64, ids URL-safe and without padding; a tagged field with its default value is omitted. Unknown
records are shown with key, version and value.
"""

from __future__ import annotations

import base64
import re
import uuid
from typing import Any

from tidelog.errors import ProtocolError
from tidelog.metadata.frame import UnknownRecord, decode_record, read_frame
from tidelog.wire.codec import Bytes
from tidelog.wire.fields import Field, Message, Struct


def show_value(value: Bytes) -> dict[str, Any]:
    """Return a metadata record's value as JSON. Raises ProtocolError."""
    record = decode_record(value)
    if isinstance(record, UnknownRecord):
        text = base64.b64encode(record.value).decode()
        return {"type": f"UNKNOWN_{record.api_key}", "version": record.version, "data": {"value": text}}
    version = read_frame(value).version
    return {"type": record_name(type(record)), "version": version, "data": show_fields(record, version)}


def record_name(cls: type[Message]) -> str:
    """Return a record's name in capitals: TOPIC_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()


def show_fields(record: Struct, version: int) -> dict[str, Any]:
    """Return the fields that a version has, under Kafka's names, as JSON values."""
    shown = {}
    for field in record.FIELDS:
        value = getattr(record, field.name)
        if version in field.versions and (field.tag is None or value != field.make_default()):
            shown[_camel(field)] = _show(value, version)
    return shown


def try_show_value(value: Bytes) -> dict[str, Any]:
    """Return what `show_value` returns; for invalid bytes, the reason why they are invalid."""
    try:
        return show_value(value)
    except ProtocolError as error:
        return {"type": "UNREADABLE", "version": -1, "data": {"error": str(error)}}


def _camel(field: Field) -> str:
    first, *rest = field.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _show(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_show(one, version) for one in value]
    if isinstance(value, Struct):
        return show_fields(value, version)
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
