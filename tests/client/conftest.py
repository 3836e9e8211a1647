"""Brokers for the client: Tidelog's own, over copies of the logs that Apache Kafka wrote, and an empty one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.reader.golden import GOLDEN, RELEASES
from tidelog.client.client import Client


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Release → address of a broker that serves what that release wrote. Nobody writes to it."""
    brokers = {}
    try:
        for release in RELEASES:
            folder = tmp_path_factory.mktemp(release) / "data"
            shutil.copytree(GOLDEN / release / "log", folder)
            brokers[release] = tidelog.Broker(data_dir=folder, log_retention_ms=-1).start()
        yield {release: broker.bootstrap_servers for release, broker in brokers.items()}
    finally:
        for broker in brokers.values():
            broker.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    """An empty broker; topics of three partitions come into being when they are asked for. Records of any time stay."""
    folder: Path = tmp_path_factory.mktemp("broker") / "data"
    with tidelog.Broker(data_dir=folder, num_partitions=3, offsets_topic_num_partitions=3, log_retention_ms=-1) as running:
        yield running


@pytest.fixture
def client(broker: tidelog.Broker) -> Iterator[Client]:
    with tidelog.connect(broker.bootstrap_servers) as connected:
        yield connected
