"""server.properties, judged by Java and by Kafka: the format, and which properties there are, with their defaults and bounds."""

from __future__ import annotations

import base64
import random
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.cluster_properties import ACCEPTED, BROKER, REFUSED
from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tidelog.broker.settings.broker_config import BROKER_PROPERTIES
from tidelog.broker.settings.cluster_config import CLUSTER_NUMBERS
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.broker.settings.unused_properties import UNUSED_PROPERTIES
from tidelog.errors import InvalidArgumentError
from tidelog.properties_file import parse_properties

JUDGE = Path(__file__).parent.parent / "kafka" / "java_sources" / "PropertiesJudge.java"
FILES = 4000
PIECES = ["a", "key", "=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "\\", "\\\\", "#", "!", "é", "x y"]
PIECES += ["\\u0041", "\\u00e9", "\\t", "\\n", "\\u", "\\uD83D", "\\uDE00"]

OTHER_DEFAULTS = {
    *("socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"),
    *("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
}
"""Kafka's backlog of 50 is more than it looks: it has threads that only accept. And it has several brokers."""

AUTHORIZERS = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka's brokers give these to the authorizer, which alone defines them."""


class Definition(NamedTuple):
    kind: str
    default: str
    validator: str


@pytest.fixture(scope="module")
def definitions() -> dict[str, Definition]:
    lines = run_java(classpath("3.9.1"), str(JUDGE), ["definitions"]).splitlines()
    return {name: Definition(*rest) for name, *rest in (line.split("\t") for line in lines if line.count("\t") == 3)}


def test_files_are_read_as_java_reads_them() -> None:
    picked = random.Random(6)
    files = ["".join(picked.choices(PIECES, k=picked.randrange(14))) for _ in range(FILES)]
    asked = "\n".join(base64.b64encode(file.encode("latin-1")).decode() for file in files) + "\n"
    answers = run_java(classpath("3.9.1"), str(JUDGE), ["parse"], stdin=asked).split()
    assert len(answers) == FILES
    different = [(file, answer) for file, answer in zip(files, answers, strict=True) if read_here(file) != read_by_java(answer)]
    assert not different
    assert sum(answer == "refused" for answer in answers) > 100


def read_here(file: str) -> dict[str, str] | None:
    try:
        return parse_properties(file)
    except InvalidArgumentError:
        return None


def read_by_java(answer: str) -> dict[str, str] | None:
    if answer == "refused":
        return None
    texts = [base64.b64decode(word).decode("utf-16-be", "surrogatepass") for word in answer.split(",")[1:]]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_every_property_of_kafka_is_known(definitions: dict[str, Definition]) -> None:
    assert len(definitions) > 300
    old = run_java(classpath("2.4.1"), str(JUDGE), ["definitions"]).split()
    names = definitions.keys() | {word for word in old if re.fullmatch(r"[a-z][A-Za-z.]+", word) and "." in word}
    assert len(names) > len(definitions)
    for name in names:
        try:
            found = sort_properties({name: "1"})
        except InvalidArgumentError:
            continue  # It is ours, and 1 is no value for it.
        assert found.unknown == ()
        assert bool(found.unused) == (name in UNUSED_PROPERTIES)
    assert names >= UNUSED_PROPERTIES, "nothing is called Kafka's that is not"


def test_defaults_types_and_bounds_are_kafkas(definitions: dict[str, Definition]) -> None:
    for name, known in {**BROKER_PROPERTIES, **CLUSTER_NUMBERS}.items():
        if name in AUTHORIZERS:
            assert name not in definitions
            continue
        kafkas = definitions[name]
        value = known.default
        told = {None: "null", (): ""}.get(value, str(value).lower() if isinstance(value, bool) else str(value))
        if name not in OTHER_DEFAULTS:
            shown = (
                kafkas.default.strip("[]").replace(", ", ",") if kafkas.kind == "LIST" else kafkas.default
            )  # As Java prints a list.
            assert (name, told) == (name, shown)
        assert known.kind == kafkas.kind, name
        least = re.match(r"\[(-?[0-9]+),\.\.\.", kafkas.validator)
        if least is not None:
            assert known.parse(least[1]) == int(least[1])
            with pytest.raises(InvalidArgumentError, match="out of range"):
                known.parse(int(least[1]) - 1)


def test_kafka_takes_and_refuses_the_same_properties_of_a_cluster() -> None:
    """`tests/broker/test_cluster_config.py` asks Tidelog about the same."""
    files = [{**BROKER, "log.dirs": "/none", **changes} for changes in [*ACCEPTED, *(changes for changes, _ in REFUSED)]]
    texts = ["".join(f"{name}={value}\n" for name, value in file.items()) for file in files]
    asked = "\n".join(base64.b64encode(text.encode("latin-1")).decode() for text in texts) + "\n"
    answers = run_java(classpath("3.9.1"), str(JUDGE), ["check"], stdin=asked).splitlines()
    answers = [answer for answer in answers if answer.startswith(("accepted", "refused\t"))]
    judged = list(zip((answer.partition("\t")[0] for answer in answers), files, strict=True))
    assert [file for answer, file in judged[: len(ACCEPTED)] if answer != "accepted"] == []
    assert [file for answer, file in judged[len(ACCEPTED) :] if answer != "refused"] == []
