"""Kafka's own definitions of its messages, as they stand in its jars, and an interpreter of them.

It knows nothing of `tidelog.wire`: it compares declarations, and makes random values and their bytes straight from the JSON, so
that a misreading of the notation or a slip of the compiler shows.
"""

from __future__ import annotations

import json
import random
import re
import struct
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.wire.random_messages import TEXTS

Definition = dict[str, Any]

FIXED = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "bool": "?", "uuid": "16s"}
KINDS = {"bool": "boolean", "bytes": "data", "uuid": "uuid16"}
LIMITS = {"int8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}
RENAMED = {("TxnOffsetCommitRequest", "GenerationIdOrMemberEpoch"): "GenerationId"}
"""Fields that a newer Kafka calls otherwise, by message and newest name."""
EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "uuid": uuid.UUID(int=0), "records": None, "float64": 0.0}


def from_jar(jar: Path) -> dict[str, Definition]:
    """Every definition in a jar of Kafka's, by its name."""
    with zipfile.ZipFile(jar) as archive:
        found = [name for name in archive.namelist() if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name)]
        texts = [archive.read(name).decode() for name in found]
    return _by_name(texts)


def from_folder(folder: Path) -> dict[str, Definition]:
    return _by_name([path.read_text() for path in folder.glob("*.json")])


def _by_name(texts: list[str]) -> dict[str, Definition]:
    plain = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    for definition in plain:
        if definition["type"] == "coordinator-key":
            # Newer releases call the version that a key begins with a kind of record, and say nothing of versions.
            definition["validVersions"] = str(definition["apiKey"])
        for field in definition.get("fields", []):
            if definition["type"] == "coordinator-key":
                field["versions"] = definition["validVersions"]
            field.setdefault("versions", field.get("taggedVersions"))
            if "tag" in field:
                field["tag"] = int(field["tag"])
            field["name"] = RENAMED.get((definition["name"], field["name"]), field["name"])
    return {definition["name"]: definition for definition in plain}


def span(text: str | None) -> tuple[int, int]:
    """Versions as (first, last); (1, 0) for none."""
    if text is None or text == "none":
        return 1, 0
    first, _, last = text.removesuffix("+").partition("-")
    return int(first), 1 << 15 if text.endswith("+") else int(last or first)


def within(version: int, text: str | None) -> bool:
    first, last = span(text)
    return first <= version <= last


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name[0].upper() + name[1:]).lower()


def default_of(field: Definition) -> Any:
    """What a field is when nobody set it."""
    kind, text = field["type"], field.get("default")
    if str(text) == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "string":
        return text or ""
    if kind in EMPTY:
        return EMPTY[kind]
    if kind in FIXED:
        return int(str(text or "0"), 0)
    return {snake(inner["name"]): default_of(inner) for inner in field.get("fields", ())}


class Interpreter:
    """One version of one definition."""

    def __init__(self, definition: Definition, version: int) -> None:
        self.definition = definition
        self.version = version
        self.flexible = within(version, definition["flexibleVersions"])
        self.commons = {common["name"]: common["fields"] for common in definition.get("commonStructs", [])}

    def fields(self, fields: list[Definition]) -> Iterator[Definition]:
        return (field for field in fields if within(self.version, field["versions"]))

    def values(self, rng: random.Random) -> dict[str, Any]:
        """Random values of the fields of this version, by their names in snake case."""
        return self._random_struct(self.definition["fields"], rng)

    def _random_struct(self, fields: list[Definition], rng: random.Random) -> dict[str, Any]:
        return {snake(field["name"]): self._random_field(field, rng) for field in self.fields(fields)}

    def _random_field(self, field: Definition, rng: random.Random) -> Any:
        if rng.random() < 0.2 and field["type"] not in self.commons:
            default = default_of(field)
            # A default may be one that the version cannot express.
            if default is not None or within(self.version, field.get("nullableVersions")):
                return default
        if within(self.version, field.get("nullableVersions")) and rng.random() < 0.2:
            return None
        kind = field["type"]
        if kind.startswith("[]"):
            return [self._random_value(kind[2:], field, rng) for _ in range(rng.choice((0, 1, 2, 3)))]
        return self._random_value(kind, field, rng)

    def _random_value(self, kind: str, field: Definition, rng: random.Random) -> Any:
        if kind in LIMITS:
            value = rng.randrange(-LIMITS[kind], LIMITS[kind])
            return value >> rng.randrange(LIMITS[kind].bit_length())
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uint16":
            return rng.getrandbits(rng.randrange(17))
        if kind == "float64":
            return rng.random() * 1e6
        if kind == "string":
            return rng.choice(TEXTS)
        if kind == "uuid":
            return uuid.UUID(int=rng.getrandbits(128))
        if kind in ("bytes", "records"):
            return rng.randbytes(rng.choice((0, 1, 126, 127, 500, 20_000)))
        assert kind not in FIXED
        return self._random_struct(field.get("fields") or self.commons[kind], rng)

    def encode(self, values: dict[str, Any]) -> bytes:
        return self._struct(self.definition["fields"], values)

    def _struct(self, fields: list[Definition], values: dict[str, Any]) -> bytes:
        out, tagged = b"", []
        for field in self.fields(fields):
            value = values[snake(field["name"])]
            if within(self.version, field.get("taggedVersions")):
                if self._differs(field, value):
                    tagged.append((field["tag"], self._value(field["type"], field, value)))
            else:
                out += self._value(field["type"], field, value)
        if self.flexible:
            out += varint(len(tagged))
            for tag, content in sorted(tagged):
                out += varint(tag) + varint(len(content)) + content
        return out

    def _differs(self, field: Definition, value: Any) -> bool:
        default = default_of(field)
        if isinstance(value, dict):
            return any(value[name] != default[name] for name in value)
        return bool(value != default)

    def _value(self, kind: str, field: Definition, value: Any) -> bytes:
        if kind == "uuid":
            return bytes(value.bytes)
        if kind in FIXED:
            return struct.pack(">" + FIXED[kind], value)
        if kind.startswith("[]"):
            items = b"" if value is None else b"".join(self._value(kind[2:], field, item) for item in value)
            return self._length("i", value) + items
        if kind in ("string", "bytes", "records"):
            data = value.encode() if isinstance(value, str) else value
            return self._length("h" if kind == "string" else "i", data) + (data or b"")
        struct_bytes = b"" if value is None else self._struct(field.get("fields") or self.commons[kind], value)
        if field["type"] == kind and within(self.version, field.get("nullableVersions")):
            # What Kafka's generated code does: seen in its bytes.
            null = b"\x00" if within(self.version, field.get("taggedVersions")) else b"\xff"
            return null if value is None else b"\x01" + struct_bytes
        return struct_bytes

    def _length(self, code: str, value: Any) -> bytes:
        if self.flexible:
            return varint(0 if value is None else len(value) + 1)
        return struct.pack(">" + code, -1 if value is None else len(value))


def varint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    return bytes([value & 127 | 128]) + varint(value >> 7)
