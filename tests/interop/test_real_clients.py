"""Every client reads what every client wrote: Java's of five releases, librdkafka, kafka-python, aiokafka.

The topics are `tests/kafka/client_matrix.py`'s; corners that no pair of choices covers are below. A broker for all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.peers import Peer, served
from tests.kafka.client_matrix import Written, cases, check_reader, check_sent, write_all
from tests.kafka.java_clients import JAVA_CLIENTS
from tests.kafka.real_clients import PYTHON_CLIENTS, Client

CLIENTS: tuple[Client, ...] = PYTHON_CLIENTS + JAVA_CLIENTS


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("served")) as peer:
        yield peer


@pytest.fixture(scope="module")
def written(peer: Peer) -> list[Written]:
    picked = cases(CLIENTS)
    peer.create_topics({case.topic: case.config() for case in picked})
    return write_all(peer.bootstrap, picked)


def test_writers_are_told_offsets_and_times(written: list[Written]) -> None:
    for each in written:
        check_sent(each)


@pytest.mark.parametrize("reader", CLIENTS, ids=str)
def test_every_client_reads_and_finds_the_same(peer: Peer, written: list[Written], reader: Client) -> None:
    check_reader(peer.bootstrap, written, reader)
