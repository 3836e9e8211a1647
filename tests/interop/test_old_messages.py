"""Compressed messages of old logs, beside the code of Kafka's consumers and of its broker's conversion: 3.9.1 and 2.4.1.

| what | must be |
|---|---|
| a wrapper that Kafka reads | offsets, keys and values are Kafka's; so are the timestamps, but inside of a wrapper of v0 |
| ... of v0 around messages of v1 | Kafka's consumer gives their own times, with the type for none; we give none |
| a wrapper that Kafka does not read | an error |
| down-converted | what Kafka's conversion gives, or an error where that is one |

The folders that the cleaner of 0.10.0.1 left (tests/golden/kafka-0.10.0.1) are read the same way.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.reader.golden import GOLDEN
from tests.records.old_messages import wrappers
from tidelog.errors import TidelogError
from tidelog.records.batch import iter_headers
from tidelog.records.conversion import down_convert
from tidelog.records.records import Record, iter_records

READER = Path(__file__).parent.parent / "kafka" / "java_sources" / "MessageReader.java"
RELEASES = ("3.9.1", "2.4.1")


class Question(NamedTuple):
    name: str
    path: Path
    magic: int
    """The newest format that the client knows."""


def questions(folder: Path) -> Iterator[Question]:
    for number, one in enumerate(wrappers()):
        if one.name.endswith("around v2"):
            continue  # On purpose: Kafka takes a message of v2 for one of v1. No release has written one; it is an error here.
        path = folder / f"{number}.log"
        path.write_bytes(one.data)
        for magic in (0, 1, 2):
            yield Question(f"{one.name}, to {magic}", path, magic)
    for path in sorted((GOLDEN / "kafka-0.10.0.1").rglob("*.log")):
        for magic in (0, 1, 2):
            yield Question(f"{path.parent.name}/{path.name}, to {magic}", path, magic)


def answer(question: Question) -> list[str]:
    """What the Java program prints, by ours."""
    data = question.path.read_bytes()
    lines = []
    try:
        if question.magic < 2:
            data = b"".join(down_convert(data, header, question.magic, 0) for header in iter_headers(data))
        for header in iter_headers(data):
            lines += map(_line, iter_records(header, memoryview(data)[header.position : header.end_position]))
    except TidelogError as error:
        lines.append(f"error {type(error).__name__}")
    return lines


def _line(record: Record) -> str:
    return f"{record.offset} {record.timestamp} {record.timestamp_type} {_text(record.key)} {_text(record.value)}"


def _text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def comparable(lines: list[str]) -> list[str]:
    """Leave out what is Kafka's alone: which exception it is, and times that it calls none."""
    found = []
    for line in lines:
        if "error" in line:
            return ["error"]  # What comes before it is up to whether records are given out one by one.
        offset, timestamp, kind, rest = line.split(" ", 3)
        found.append(f"{offset} {-1 if kind == '-1' else timestamp} {kind} {rest}")
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_read_as_kafka_reads(tmp_path: Path, release: str) -> None:
    asked = list(questions(tmp_path))
    listed = tmp_path / "questions"
    listed.write_text("".join(f"{one.path}\t{one.magic}\n" for one in asked))
    printed = run_java(classpath(release), str(READER), [listed]).split("end\n")
    assert len(printed) == len(asked) + 1
    theirs = {one.name: comparable(text.splitlines()) for one, text in zip(asked, printed[:-1], strict=True)}
    ours = {one.name: comparable(answer(one)) for one in asked}
    differ = [f"{name}: {theirs[name]} and not {ours[name]}" for name in theirs if theirs[name] != ours[name]]
    assert not differ, "\n".join(differ)
    assert sum(lines != ["error"] for lines in ours.values()) > 200
