"""Random messages of any version, made from the tables themselves; where a version lacks a field, it has its default."""

from __future__ import annotations

import importlib
import pkgutil
import random
import uuid
from types import ModuleType
from typing import Any

import tidelog.wire.coordinator
import tidelog.wire.messages
from tidelog.wire.decoder_source import kind_of
from tidelog.wire.fields import ZERO_UUID, Field, Message, Struct

NUMBERS = {"int8": (8, True), "int16": (16, True), "uint16": (16, False), "int32": (32, True), "int64": (64, True)}
TEXTS = ("", "a", "topic", "größe", "数据", "\N{GRINNING FACE}", "x" * 126, "x" * 127, "y" * 128, "z" * 300)


def message_classes() -> list[type[Message]]:
    """Every request and response there is."""
    return _messages_in(tidelog.wire.messages)


def stored_classes() -> list[type[Message]]:
    """Everything that coordinators keep."""
    return _messages_in(tidelog.wire.coordinator)


def _messages_in(package: ModuleType) -> list[type[Message]]:
    modules = [importlib.import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    values = [value for module in modules for value in vars(module).values()]
    return [value for value in values if isinstance(value, type) and issubclass(value, Message) and value is not Message]


def every_version() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in message_classes() for version in cls.VERSIONS]


def random_struct(cls: type[Struct], version: int, rng: random.Random) -> Any:
    return cls(**{field.name: _random(field, version, rng) for field in cls.FIELDS if version in field.versions})


def _random(field: Field, version: int, rng: random.Random) -> Any:
    if field.tag is not None and rng.random() < 0.5:
        return field.make_default()
    if version in field.nullable and rng.random() < 0.25:
        return None
    if field.kind == "array":
        return [_value(kind_of(field.of), field.of, field.name, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _value(field.kind, field.of, field.name, version, rng)


def _value(kind: str, of: Any, name: str, version: int, rng: random.Random) -> Any:
    if kind == "struct":
        return random_struct(of, version, rng)
    if name.endswith("error_code"):
        return rng.randrange(-1, 120)
    if name == "transaction_start_time_ms":
        return rng.choice((0, 1_700_000_000_000))  # kio cannot read the -1 of one that has not begun
    if name in ("log_append_time_ms", "retention_time_ms", "session_lifetime_ms"):
        return rng.choice((-1, 0, 1_700_000_000_000, 1_700_000_000_125))  # of others, kio loses a millisecond or fails
    if kind in NUMBERS:
        bits, signed = NUMBERS[kind]
        value = rng.getrandbits(rng.randrange(bits + 1))
        return value - (1 << bits) if signed and value >= 1 << (bits - 1) else value
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.random() * 1e6
    if kind == "uuid16":
        return uuid.UUID(int=rng.getrandbits(128)) if rng.random() < 0.8 else ZERO_UUID
    if kind == "string":
        return rng.choice(TEXTS)
    return rng.randbytes(rng.choice((0, 1, 126, 127, 1000)))
