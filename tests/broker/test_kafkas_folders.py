"""Folders that Apache Kafka 2.4.1 and 3.9.1 wrote, served as they are: clients see what Kafka's broker showed them.

`tests/golden` says what that was. By time there are two differences. Kafka looks into one segment only, and says that there is
nothing where a later one has a record; Tidelog names that record. And Kafka refuses where its configuration said v0, which is
in no file of the folder; Tidelog answers by what is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

import tidelog
from tests.kafka.clients import consume
from tests.kafka.golden_rows import RELEASES, golden, has_transactions, log_folder, rows
from tests.kafka.real_clients import AioKafka, Client, KafkaPython, Librdkafka
from tests.patience import PATIENCE_S


class Served(NamedTuple):
    """A broker on a copy of a folder, and what Kafka said of it."""

    bootstrap: str
    expected: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=RELEASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served") / "data"
    shutil.copytree(log_folder(request.param), folder)
    with tidelog.Broker(folder, log_retention_ms=-1) as broker:
        yield Served(broker.bootstrap_servers, golden(request.param))


def test_every_record(served: Served) -> None:
    """Of all topics of one partition."""
    topics = [topic for topic, partitions in served.expected.items() if len(partitions) == 1]
    assert len(topics) > 10
    check(served, topics, Librdkafka(), "read_uncommitted")
    check(served, [topic for topic in topics if has_transactions(served.expected[topic])], Librdkafka(), "read_committed")


@pytest.mark.parametrize("served", ["3.9.1"], indirect=True)
@pytest.mark.parametrize("reader", [KafkaPython(), AioKafka()], ids=str)
def test_other_libraries_pass_over_what_was_aborted(served: Served, reader: Client) -> None:
    check(
        served, [topic for topic, partitions in served.expected.items() if has_transactions(partitions)], reader, "read_committed"
    )


def check(served: Served, topics: list[str], reader: Client, isolation: str) -> None:
    if topics:
        for topic, seen in reader.read(served.bootstrap, topics, isolation).items():
            assert seen == rows(served.expected[topic][0], committed=isolation == "read_committed"), topic


def test_every_partition(served: Served) -> None:
    for topic, partitions in served.expected.items():
        if len(partitions) > 1:
            for partition in partitions:
                assert consume(served.bootstrap, topic, partition["partition"]) == rows(partition)


def test_by_time(served: Served) -> None:
    """What Kafka answered; where it found nothing or refused: the first record that there is."""
    asked = {
        TopicPartition(topic, partition["partition"]): list(partition["list_offsets"])
        for topic, partitions in served.expected.items()
        for partition in partitions
    }
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    answered = 0
    while any(asked.values()):
        turn = {place: targets.pop() for place, targets in asked.items() if targets}
        specs = {place: OffsetSpec.for_timestamp(target) for place, (target, *_) in turn.items()}
        for place, future in admin.list_offsets(specs, request_timeout=PATIENCE_S).items():
            target, *kafka = turn[place]
            error = future.exception(PATIENCE_S)
            answer = ["error", error.args[0].code()] if error else [future.result().offset, future.result().timestamp]
            if answer != kafka:
                assert kafka in ([-1, -1], ["error", 43]), f"{place} at {target}"
                records = rows(served.expected[place.topic][place.partition])
                first = next((row for row in records if row.timestamp >= target), None)
                assert answer == ([-1, -1] if first is None else [first.offset, first.timestamp]), f"{place} at {target}"
            answered += 1
    assert answered > 100
