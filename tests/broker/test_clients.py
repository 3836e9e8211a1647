"""Real client libraries against the broker: librdkafka, kafka-python, aiokafka. The Java clients are in tests/interop.

What they write, with which codec, format, timestamp type and headers, is in `tests/kafka/client_matrix.py`; all read all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidelog
from tests.kafka.client_matrix import Written, cases, check_reader, check_sent, write_all
from tests.kafka.clients import create_topics
from tests.kafka.real_clients import PYTHON_CLIENTS, Client


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with tidelog.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def written(bootstrap: str) -> list[Written]:
    picked = cases(PYTHON_CLIENTS)
    create_topics(bootstrap, {case.topic: case.config() for case in picked})
    return write_all(bootstrap, picked)


def test_writers_are_told_offsets_and_times(written: list[Written]) -> None:
    for each in written:
        check_sent(each)


@pytest.mark.parametrize("reader", PYTHON_CLIENTS, ids=str)
def test_every_client_reads_and_finds_the_same(bootstrap: str, written: list[Written], reader: Client) -> None:
    check_reader(bootstrap, written, reader)
