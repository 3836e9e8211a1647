"""The tables say what the definitions inside Kafka's own jars say: 3.9.1, which knows all old versions, and the newest 4.x.

Every message, version, field, type, nullability, tag and default is compared, and random messages are encoded by an interpreter
of the definitions that shares nothing with the codec. What coordinators keep is defined in jars of their own.
"""

from __future__ import annotations

import functools

import pytest

from tests.kafka.jars import jars as folder_of
from tests.wire.definitions import Definition, from_jar, snake
from tests.wire.judging import declaration_differences, judge_bytes, versions_of
from tests.wire.random_messages import message_classes, stored_classes
from tidelog.metadata.control_records import CONTROL_RECORDS
from tidelog.metadata.records import RECORD_TYPES
from tidelog.metadata.remote_log_records import REMOTE_LOG_RECORDS
from tidelog.wire.codec import Message

RELEASES = ("3.9.1", "4.4.0")
SERVERS = {"3.9.1": "3.9.1", "4.4.0": "kafka-coordinators-4.4.0"}
"""Where each release's coordinators and controllers are: those of 4.4.0 are no clients."""


ONLY_3_9 = {"AddRaftVoter", "ListClientMetricsResources"}
"""APIs that are off here: only the versions of 3.9.1 are listed, and known."""

SINCE_4 = {"DescribeShareGroupOffsets", "ShareGroupDescribe"}
"""APIs of share groups, which the client uses. 3.9.1 has none, or another, early access version."""


def classes_of(release: str) -> list[type[Message]]:
    others = SINCE_4 if release == RELEASES[0] else ONLY_3_9
    return [cls for cls in message_classes() if cls.API_NAME not in others]


@functools.cache
def definitions(release: str) -> dict[str, Definition]:
    return _of(release, f"kafka-clients-{release}.jar")


@functools.cache
def stored(release: str) -> dict[str, Definition]:
    """What is in the internal topics, and what members exchange."""
    jars = SERVERS[release]
    parts = ["group", "transaction"] + (["share"] if release == RELEASES[-1] else [])
    found = dict(definitions(release))
    for part in parts:
        found |= _of(jars, f"kafka-{part}-coordinator-{release}.jar")
    return found


def kept_since(release: str) -> list[type[Message]]:
    """Return what is read of what the coordinators of a release keep. 3.9.1's share groups are another, early access version, and
    it keeps no regular expressions.
    """
    classes = stored_classes()
    if release == RELEASES[-1]:
        return classes
    return [cls for cls in classes if not cls.__name__.startswith(("Share", "Streams", "ConsumerGroupRegular"))]


@pytest.mark.parametrize("release", RELEASES)
def test_metadata_records(release: str) -> None:
    """Of KRaft's metadata log, and the Raft layer's own records in it."""
    known = definitions(release) | _of(SERVERS[release], f"kafka-metadata-{release}.jar")
    newer = [] if release == RELEASES[-1] else ["ClearElrRecord", "UnregisterControllerRecord"]
    classes = [cls for cls in (*RECORD_TYPES.values(), *CONTROL_RECORDS.values()) if cls.__name__ not in newer]
    assert {name for name, one in known.items() if one["type"] == "metadata"} <= {cls.__name__ for cls in classes}
    assert declaration_differences(known, classes) == []
    for cls, version in versions_of(known, classes):
        judge_bytes(cls, known[cls.__name__], version, rounds=20)


@pytest.mark.parametrize("release", RELEASES)
def test_records_about_remote_segments(release: str) -> None:
    """3.9.1 lacks a tagged field, which older readers skip."""
    known = _of(SERVERS[release], f"kafka-storage-{release}.jar")
    every = REMOTE_LOG_RECORDS.values()
    classes = [cls for cls in every if release == RELEASES[-1] or "txn_index_empty" not in {field.name for field in cls.FIELDS}]
    assert {name for name, one in known.items() if one["type"] == "metadata"} == {cls.__name__ for cls in every}
    assert declaration_differences(known, classes) == []
    for cls, version in versions_of(known, classes):
        judge_bytes(cls, known[cls.__name__], version, rounds=50)


def _of(jars: str, name: str) -> dict[str, Definition]:
    return from_jar(folder_of(jars) / name)


@pytest.mark.parametrize("release", RELEASES)
def test_declarations(release: str) -> None:
    assert declaration_differences(definitions(release), classes_of(release)) == []


@pytest.mark.parametrize("release", RELEASES)
def test_bytes(release: str) -> None:
    for cls, version in versions_of(definitions(release), classes_of(release)):
        judge_bytes(cls, definitions(release)[cls.__name__], version, rounds=20)


@pytest.mark.parametrize("release", RELEASES)
def test_what_coordinators_keep(release: str) -> None:
    classes = kept_since(release)
    assert declaration_differences(stored(release), classes) == []
    for cls, version in versions_of(stored(release), classes):
        judge_bytes(cls, stored(release)[cls.__name__], version, rounds=50)


def test_every_version_is_judged_by_a_release() -> None:
    judged = {pair for release in RELEASES for pair in versions_of(definitions(release), classes_of(release))}
    assert judged >= {(cls, version) for cls, _ in judged for version in cls.VERSIONS}
    kept = {pair for release in RELEASES for pair in versions_of(stored(release), kept_since(release))}
    assert kept == {(cls, version) for cls in stored_classes() for version in cls.VERSIONS}
    newest = stored(RELEASES[-1])
    names = {field.name for cls in stored_classes() for field in cls.FIELDS if field.tag is not None}
    assert names <= {snake(field["name"]) for cls in stored_classes() for field in newest[cls.__name__]["fields"]}
