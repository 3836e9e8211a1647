"""The tables say what the definitions inside Kafka's own jars say: 3.9.1, which knows all old versions, and the newest 4.x.

Every message, version, field, type, nullability, tag and default is compared, and random messages are encoded by an interpreter
of the definitions that shares nothing with the codec.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.kafka.jars import classpath
from tests.wire.definitions import Definition, from_jar
from tests.wire.judging import declaration_differences, judge_bytes, versions_of

RELEASES = ("3.9.1", "4.4.0")


@functools.cache
def definitions(release: str) -> dict[str, Definition]:
    (jar,) = Path(classpath(release)).parent.glob("kafka-clients-*.jar")
    return from_jar(jar)


@pytest.mark.parametrize("release", RELEASES)
def test_declarations(release: str) -> None:
    assert declaration_differences(definitions(release)) == []


@pytest.mark.parametrize("release", RELEASES)
def test_bytes(release: str) -> None:
    for cls, version in versions_of(definitions(release)):
        judge_bytes(cls, definitions(release)[cls.__name__], version, rounds=20)


def test_every_version_is_judged_by_a_release() -> None:
    judged = {pair for release in RELEASES for pair in versions_of(definitions(release))}
    assert judged >= {(cls, version) for cls, _ in judged for version in cls.VERSIONS}
