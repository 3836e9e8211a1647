"""Metadata records in the form of Kafka's DumpLogSegments: JSON with Kafka's names of records and fields.

::

    {"type": "TOPIC_RECORD", "version": 0, "data": {"name": "flights", "topicId": "8bHAiWzVQAKqTq3mJqq5sQ"}}

Ids and bytes are base64, ids URL-safe and without padding; a tagged field with its default value is omitted. Unknown
records are shown with key, version and value.

Records of ``__remote_log_metadata`` have the same form. Their states are shown by name, as in Kafka's DumpLogSegments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from tidelog.errors import ProtocolError
from tidelog.metadata.frame import UnknownRecord, decode_record, read_frame
from tidelog.metadata.remote_log_records import STATES, decode_remote_log_record
from tidelog.wire.codec import Bytes
from tidelog.wire.fields import Message
from tidelog.wire.json_form import Json, camel, show_bytes, show_fields


def show_value(value: Bytes) -> Json:
    """Return a metadata record's value as JSON; an unknown record with its bytes. Raises ProtocolError."""
    record = decode_record(value)
    if isinstance(record, UnknownRecord):
        return {"type": f"UNKNOWN_{record.api_key}", "version": record.version, "data": {"value": show_bytes(record.value)}}
    return _show_known(record, read_frame(value).version)


def show_known_value(value: Bytes, decode: Callable[[Bytes], Message | UnknownRecord] = decode_record) -> Json:
    """Return what `show_value` returns. Also raises ProtocolError if the record's type or version is unknown."""
    record = decode(value)
    if isinstance(record, UnknownRecord):
        raise ProtocolError("a metadata record has an unknown type or version", found=f"{record.name}, version {record.version}")
    return _show_known(record, read_frame(value).version)


def show_remote_log_value(value: Bytes) -> Json:
    """Return a value of ``__remote_log_metadata`` as `show_known_value` does, with the names of states. Raises ProtocolError."""
    shown = show_known_value(value, decode_remote_log_record)
    for field, states in STATES.items():
        if (name := camel(field)) in shown["data"]:
            shown["data"][name] = states(shown["data"][name]).name
    return shown


def _show_known(record: Message, version: int) -> Json:
    return {"type": record_name(type(record)), "version": version, "data": show_fields(record, version)}


@cache
def record_name(cls: type[Message]) -> str:
    """Return a record's name in capitals: TOPIC_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()


def try_show_value(value: Bytes) -> Json:
    """Return what `show_value` returns; for invalid bytes, the reason why they are invalid."""
    try:
        return show_value(value)
    except ProtocolError as error:
        return {"type": "UNREADABLE", "version": -1, "data": {"error": str(error)}}
