"""Holds the message classes against a set of Kafka's definitions: what they declare, and what they read and write."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.wire.definitions import KINDS, Definition, Interpreter, default_of, snake, span, within
from tests.wire.random_messages import message_classes
from tidelog.wire.codec import Message, decode, encode
from tidelog.wire.decoder_source import kind_of
from tidelog.wire.fields import Field, Struct

RENAMED = {
    "AssignedTopic": "TopicPartition",
    "AssignedTopicPartitions": "TopicPartitions",
    "ConsumerGroupMember": "Member",
    "DescribedConsumerGroup": "DescribedGroup",
    "DirectoryDataResult": "DirectoryData",
    "HeartbeatAssignment": "Assignment",
    "HeartbeatTopicPartitions": "TopicPartitions",
    "MemberAssignment": "Assignment",
    "PartitionDataResult": "PartitionData",
    "PartitionSnapshotResult": "PartitionSnapshot",
    "TargetTaskIds": "TaskIds",
    "TopicDataResult": "TopicData",
    "TopicSnapshotResult": "TopicSnapshot",
    "VoterListener": "Listener",
}
"""Structs that have another name here than Kafka's: of a topic and its partitions, where a TopicPartition is one partition; and
those of responses whose requests have a struct of the same name."""


def declaration_differences(definitions: dict[str, Definition], classes: Sequence[type[Message]] = ()) -> list[str]:
    """Each way in which the tables say something else than the definitions, in the versions that the definitions know.

    Without `classes`, of all requests and responses. What is stored has no API, and a newer release may have given a version
    more tagged fields.
    """
    found = []
    for cls in classes or message_classes():
        definition = definitions[cls.__name__]
        if definition.get("apiKey") != cls.API_KEY and cls.API_KEY >= 0:
            found.append(f"{cls.__name__}: key {cls.API_KEY}")
        first, last = span(definition["validVersions"])
        if not set(range(first, last + 1)) <= set(cls.VERSIONS):
            found.append(f"{cls.__name__}: versions {cls.VERSIONS}")
        for version in range(first, last + 1):
            if within(version, definition["flexibleVersions"]) != cls.is_flexible(version):
                found.append(f"{cls.__name__} v{version}: flexible")
            commons = {common["name"]: common["fields"] for common in definition.get("commonStructs", [])}
            of_stored = cls.API_KEY < 0
            found += _struct_differences(f"{cls.__name__} v{version}", cls, definition["fields"], version, commons, of_stored)
    return found


def _struct_differences(
    where: str, cls: type[Struct], fields: list[Definition], version: int, commons: dict[str, Any], of_stored: bool
) -> list[str]:
    theirs = [field for field in fields if within(version, field["versions"])]
    named = {snake(field["name"]) for field in theirs}
    ours = [
        field
        for field in cls.FIELDS
        if version in field.versions and not (of_stored and field.tag is not None and field.name not in named)
    ]
    if [snake(field["name"]) for field in theirs] != [field.name for field in ours]:
        return [f"{where}: {[field.name for field in ours]} instead of {[field['name'] for field in theirs]}"]
    found = []
    for mine, its in zip(ours, theirs, strict=True):
        place = f"{where}.{mine.name}"
        element = its["type"].removeprefix("[]")
        if _declared(mine, version) != _defined(its, version):
            found.append(f"{place}: {_declared(mine, version)} instead of {_defined(its, version)}")
        elif element[0].isupper():
            if RENAMED.get(mine.of.__name__, mine.of.__name__) != element:
                found.append(f"{place}: made of {mine.of.__name__}, not {element}")
            found += _struct_differences(place, mine.of, its.get("fields") or commons[element], version, commons, of_stored)
    return found


def _declared(field: Field, version: int) -> tuple[Any, ...]:
    default = field.make_default()
    kind = f"[]{kind_of(field.of)}" if field.kind == "array" else field.kind
    return kind, version in field.nullable, field.tag, None if isinstance(default, Struct) else default


def _defined(field: Definition, version: int) -> tuple[Any, ...]:
    element = field["type"].removeprefix("[]")
    kind = "struct" if element[0].isupper() else KINDS.get(element, element)
    default = default_of(field)
    tag = field["tag"] if within(version, field.get("taggedVersions")) else None
    nullable = within(version, field.get("nullableVersions"))
    return field["type"][: -len(element)] + kind, nullable, tag, None if isinstance(default, dict) else default


def message_of(cls: type[Struct], values: dict[str, Any]) -> Any:
    """Build a message from values by name; what is not among them keeps its default."""
    inner = {field.name: field.of for field in cls.FIELDS if field.kind == "struct" or isinstance(field.of, type)}

    def made(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [made(name, element) for element in value]
        return message_of(inner[name], value) if isinstance(value, dict) else value

    return cls(**{name: made(name, value) for name, value in values.items()})


def judge_bytes(cls: type[Message], definition: Definition, version: int, rounds: int) -> None:
    """Random messages: the interpreter's bytes are ours, and are read as the values that they were made of."""
    interpreter = Interpreter(definition, version)
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(rounds):
        values = interpreter.values(rng)
        data = interpreter.encode(values)
        message = message_of(cls, values)
        assert b"".join(encode(message, version)) == data
        assert decode(cls, version, b"head" + data + b"tail", 4, 4 + len(data)) == message


def versions_of(definitions: dict[str, Definition], classes: Sequence[type[Message]] = ()) -> list[tuple[type[Message], int]]:
    """Every message here, or of `classes`, with each version that the definitions know."""
    found = []
    for cls in classes or message_classes():
        first, last = span(definitions[cls.__name__]["validVersions"])
        found += [(cls, version) for version in range(first, last + 1)]
    return found
