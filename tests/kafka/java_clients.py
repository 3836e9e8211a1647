"""Apache Kafka's own clients, of any release from 0.10.2 on: `java_sources/ClientProgram.java`, run once for many commands."""

from __future__ import annotations

import base64
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.kafka.clients import NewRow, Row
from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.kafka.real_clients import CODECS, Client, Found, Seen, Sent, Write, in_turn

PROGRAM = Path(__file__).parent / "java_sources" / "ClientProgram.java"
RELEASES = ("0.10.2.2", "0.11.0.3", "2.4.1", "3.9.1", "4.4.0")
"""The last before message format v2, the first of it, one between, the reference, the newest."""

_TYPES = {"NoTimestampType": 0, "CreateTime": 1, "LogAppendTime": 2}


class JavaClient(Client):
    """A release's producer and consumer. Each call starts a JVM once, however much it is to do."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.name = f"java-{release}"
        number = tuple(int(part) for part in release.split("."))
        self.message_format = 2 if number >= (0, 11) else 1
        self.codecs = CODECS if number >= (2, 1) else CODECS[:-1]

    def write(self, bootstrap: str, writes: Sequence[Write]) -> list[list[Sent] | str]:
        commands = [self._produce(write) for write in writes]
        results: list[list[Sent] | str] = []
        for answers in self.run(bootstrap, commands):
            error = next((fields[2] for fields in answers if fields[0] == "error"), None)
            results.append(error or [Sent(int(fields[3]), int(fields[4])) for fields in answers])
        return results

    def _produce(self, write: Write) -> str:
        settings = {"compression.type": write.codec, "linger.ms": "1000"}
        if self.message_format == 2:
            settings["enable.idempotence"] = str(write.idempotent).lower()
        head = ("produce", _settings(settings), write.topic, "0", str(len(write.rows)), str(write.batch))
        lines = ["\t".join(head)]
        lines += ["\t".join((str(row.timestamp), _text(row.key), _text(row.value), _headers(row))) for row in write.rows]
        return "\n".join(lines)

    def read(self, bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted") -> dict[str, list[Row]]:
        topics = list(topics)
        return self._rows(topics, self.run(bootstrap, [_consume(topics, isolation)]))

    def find(self, bootstrap: str, times: Mapping[str, Sequence[int]]) -> dict[str, list[Found | None]]:
        return self._found(times, self.run(bootstrap, _ask_times(times)))

    def look(
        self, bootstrap: str, topics: Iterable[str], times: Mapping[str, Sequence[int]], committed: Iterable[str] = ()
    ) -> Seen:
        topics, committed = list(topics), list(committed)
        answers = self.run(bootstrap, [_consume(topics), _consume(committed, "read_committed"), *_ask_times(times)])
        return Seen(self._rows(topics, answers[:1]), self._found(times, answers[2:]), self._rows(committed, answers[1:2]))

    def _rows(self, topics: list[str], answers: list[list[list[str]]]) -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {topic: [] for topic in topics}
        for topic, _partition, offset, timestamp, timestamp_type, key, value, headers in self._fields(answers):
            row = Row(
                int(offset), int(timestamp), _TYPES[timestamp_type], _bytes(key), _bytes(value), tuple(_read_headers(headers))
            )
            rows[topic].append(row)
        return rows

    def _found(self, times: Mapping[str, Sequence[int]], answers: list[list[list[str]]]) -> dict[str, list[Found | None]]:
        found: dict[str, list[Found | None]] = {topic: [] for topic in times}
        for topic, _partition, _asked, offset, timestamp in self._fields(answers):
            found[topic].append(None if offset == "none" else Found(int(offset), int(timestamp)))
        return found

    def _fields(self, answers: list[list[list[str]]]) -> Iterator[list[str]]:
        for kind, *fields in itertools.chain.from_iterable(answers):
            if kind == "error":
                raise RuntimeError(f"{self.name}: {' '.join(fields[1:])}")
            yield fields

    def run(self, bootstrap: str, commands: Sequence[str]) -> list[list[list[str]]]:
        """Give the program commands; its answers to each, as fields."""
        with tempfile.TemporaryDirectory(prefix="java-client-") as name:
            questions, verdicts = Path(name, "commands"), Path(name, "answers")
            questions.write_text("".join(f"{command}\n" for command in commands))
            printed = run_java(classpath(self.release), str(PROGRAM), [bootstrap, questions, verdicts])
            answers: list[list[list[str]]] = [[]]
            for line in verdicts.read_text().splitlines():
                fields = line.split("\t")
                if fields[0] == "done":
                    answers.append([])
                else:
                    answers[-1].append(fields)
        assert len(answers) == len(commands) + 1, f"{self.name} answered {len(answers) - 1} of {len(commands)}:\n{printed}"
        self.printed = printed
        return answers[:-1]

    printed = ""
    """What the last run printed: its warnings."""


JAVA_CLIENTS: tuple[JavaClient, ...] = tuple(JavaClient(release) for release in RELEASES)


def _consume(topics: Sequence[str], isolation: str = "read_uncommitted") -> str:
    return "\t".join(("consume", _settings({"isolation.level": isolation}), *(f"{topic}:0" for topic in topics)))


def _ask_times(times: Mapping[str, Sequence[int]]) -> list[str]:
    return ["\t".join(("times", "", *(f"{topic}:0:{each}" for topic, each in wanted.items()))) for wanted in in_turn(times)]


def _settings(settings: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in settings.items())


def _text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def _headers(row: NewRow) -> str:
    return ",".join(f"{name}={_text(value)}" for name, value in row.headers)


def _read_headers(text: str) -> Iterator[tuple[str, bytes | None]]:
    for header in text.split(",") if text else ():
        name, _, value = header.partition("=")
        yield name, _bytes(value)
