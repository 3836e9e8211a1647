"""The pairs: Kafka 3.9.1 for message format v2, Kafka 2.4.1 for v0 and v1, each beside a broker of Tidelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.pair import Pair
from tests.kafka import Kafka391
from tidelog.broker.embedded import Broker

BOTH: dict[str, Any] = {
    "num.partitions": "1",
    "auto.create.topics.enable": "true",
    "log.retention.ms": "-1",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
}


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("differential")
    with Kafka391(folder / "kafka", BOTH) as kafka, Broker(folder / "tidelog", **BOTH) as tidelog:
        both = Pair(address(kafka.bootstrap), address(tidelog.bootstrap_servers))
        yield both
        both.close()
