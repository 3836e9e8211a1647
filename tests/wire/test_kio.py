"""kio, generated from Kafka's own definitions, reads what is written here and writes it again, byte for byte.

It knows the versions that Kafka 4 kept; the older ones are judged by Kafka's jars (tests/interop/test_wire_definitions.py).
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import random
import re
import uuid
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from tests.wire.random_messages import every_version, message_classes, random_struct
from tidelog.wire.codec import Message, decode, encode
from tidelog.wire.fields import ZERO_UUID, Struct

ROUNDS = 6
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_class(cls: type[Message], version: int) -> Any:
    """The class of kio for a message, None where it has none."""
    api = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", cls.API_NAME).lower()
    part = "request" if cls.__name__.endswith("Request") else "response"
    try:
        return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{part}"), cls.__name__)
    except ModuleNotFoundError:
        return None


def comparable(value: Any) -> Any:
    """What kio gives a type of its own, as a plain value."""
    if isinstance(value, int | float | str | bytes | type(None)):
        return int(value) if isinstance(value, int) else value
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return None if value == ZERO_UUID else value
    if isinstance(value, list | tuple):
        return [comparable(element) for element in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return {re.sub(r"_ms$|_$", "", name): comparable(getattr(value, name)) for name in fields_of(value)}


def fields_of(value: Any) -> list[str]:
    return [field.name for field in (value.FIELDS if isinstance(value, Struct) else dataclasses.fields(value))]


def same(ours: Any, theirs: Any) -> None:
    """Each field that kio knows of in this version has the same value."""
    if isinstance(theirs, dict):
        for name, value in theirs.items():
            same(ours[name], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for mine, its in zip(ours, theirs, strict=True):
            same(mine, its)
    else:
        assert ours == theirs or (ours == -1 and theirs is None)


# kio is imported by the tests, not by who collects them: it has a module for each version.
@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_kio_reads_and_writes_the_same(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        entity = kio_class(cls, version)
        if entity is None:
            continue
        read, write = entity_reader(entity), entity_writer(entity)
        rng = random.Random(f"{cls.__name__} {version}")
        for _ in range(ROUNDS):
            message = random_struct(cls, version, rng)
            if "DelegationToken" in cls.__name__:
                _shorten_times(message)
            data = b"".join(encode(message, version))
            theirs, size = read(data, 0)
            assert size == len(data), version
            same(comparable(message), comparable(theirs))
            again = io.BytesIO()
            write(again, theirs)
            assert again.getvalue() == data, version
            assert decode(cls, version, data) == message, version


def _shorten_times(message: Message) -> None:
    """Take times that Python's own types can hold: kio gives these."""
    for name in fields_of(message):
        if name.endswith("_ms"):
            setattr(message, name, getattr(message, name) % 10**9)


def test_kio_knows_most_versions() -> None:
    assert sum(kio_class(cls, version) is not None for cls, version in every_version()) > 150
