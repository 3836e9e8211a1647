"""A transactional copy by librdkafka; its broker, or one of several, and copiers are killed. `make soak` does it for longer."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.broker.eos.copying import Copying, python_copier
from tests.broker.eos.processes import Served, ServedByMany

PROPERTIES = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
OPTIONS = ("--abort-share", "0.1", "--transaction-timeout-ms", "3000", "--stuck-s", "1.5", "--session-timeout-ms", "600")
SOAK = bool(os.environ.get("TIDELOG_SOAK"))
KINDS = ("broker_dies", "broker_restarts", "copier_dies", "copier_dies", "joins", "leaves", "pause")


RUNS: list[tuple[int, str, int, list[str]]] = [(1, "range", 1000, ["copier_dies", "broker_dies"])]
"""Seed, assignor, records of each partition, what happens."""

if SOAK:
    RUNS += [
        (seed, assignor, 8000, random.Random(seed).choices(KINDS, k=20))
        for seed in range(4)
        for assignor in ("range", "roundrobin", "cooperative-sticky")
    ]


@pytest.mark.parametrize(("seed", "assignor", "records", "disturbances"), RUNS)
def test_each_record_is_copied_once(tmp_path: Path, seed: int, assignor: str, records: int, disturbances: list[str]) -> None:
    with (
        Served(tmp_path / "data", PROPERTIES) as broker,
        Copying(
            broker, python_copier(tmp_path, *OPTIONS, "--assignor", assignor), partitions=3, records=records, seed=seed, copiers=2
        ) as copying,
    ):
        copying.run(disturbances)
    assert copying.counts["busy"] > 0  # Something was to be copied when it happened.
    # What was aborted, and markers: the count is not of a log without them.
    assert copying.counts["uncommitted"] > 0


MANY = [(1, 1000, ["broker_dies", "broker_dies"])]
"""Seed, records of each partition, what happens to the brokers of `--processes 2`. `make soak` kills one 200 times."""

if SOAK:
    MANY += [
        (seed, 20000, random.Random(seed).choices(("broker_dies", "broker_dies", "broker_restarts"), k=50)) for seed in range(4)
    ]


@pytest.mark.parametrize(("seed", "records", "disturbances"), MANY)
def test_each_record_is_copied_once_by_several_processes(
    tmp_path: Path, seed: int, records: int, disturbances: list[str]
) -> None:
    with (
        ServedByMany(tmp_path / "data", PROPERTIES, 2) as broker,
        Copying(broker, python_copier(tmp_path, *OPTIONS), partitions=4, records=records, seed=seed, copiers=2) as copying,
    ):
        copying.run(disturbances)
        assert broker.restarts == len(disturbances)
    assert copying.counts["busy"] > 0
    assert copying.counts["uncommitted"] > 0
