"""Messages as JSON, in the form of Kafka's own JSON converters: the fields that a version has, under Kafka's names.

Ids and bytes are base64, ids URL-safe and without padding. A tagged field with its default value is omitted.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from binascii import b2a_base64
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from tidelog.wire.decoder_source import kind_of
from tidelog.wire.fields import Struct
from tidelog.wire.generated import compiled

Json: TypeAlias = dict[str, Any]


def show_fields(record: Struct, version: int) -> Json:
    """Return the fields that a version has, under Kafka's names, as JSON values."""
    return shower(type(record), version)(record)


@cache
def shower(cls: type[Struct], version: int) -> Callable[[Any], Json]:
    """Return the compiled function that shows a struct as `show_fields` does."""
    names: dict[str, Any] = {}
    items, tagged = [], []
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        value, name = f"struct.{field.name}", repr(camel(field.name))
        convert = _converter(field.kind, field.of, version)
        if convert is not None:
            names[f"show_{field.name}"] = convert
            value = f"{'' if field.nullable.first > version else f'None if {value} is None else '}show_{field.name}({value})"
        if field.tag is None:
            items.append(f"{name}: {value}")
        else:
            names[f"default_{field.name}"] = field.make_default()
            tagged += [f"    if struct.{field.name} != default_{field.name}:", f"        shown[{name}] = {value}"]
    source = ["def show(struct):", f"    shown = {{{', '.join(items)}}}", *tagged, "    return shown", ""]
    return compiled("\n".join(source), "show", f"show {cls.__name__} v{version}", names)


def camel(name: str) -> str:
    """Return Kafka's name of a field, in camel case."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _converter(kind: str, of: Any, version: int) -> Callable[[Any], Any] | None:
    """Return the function that converts a value to a JSON value; None if no conversion is needed."""
    if kind == "uuid16":
        return _show_id
    if kind == "data":
        return show_bytes
    if kind == "struct":
        return shower(of, version)
    convert = _converter(kind_of(of), of, version) if kind == "array" else None
    return None if convert is None else lambda values: [convert(value) for value in values]


def _show_id(value: UUID) -> str:
    return urlsafe_b64encode(value.bytes)[:22].decode()


def show_bytes(value: bytes) -> str:
    """Return bytes as base64."""
    return b2a_base64(value, newline=False).decode()
