"""A follower of ours that begins with an empty folder, or is far behind, in a cluster of ZooKeeper: it catches up and is in sync.

The protocol says which versions a leader takes, so the first request of a connection is a Fetch, and its answer a large one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.gate import first_of
from tests.interop.test_zookeeper_member import KAFKAS, OURS, Mixed, mixed
from tests.kafka.tools import producer_performance

RELEASES = first_of(("3.9.1", "3.9"), ("2.4.1", "2.4"), why="the same, by the controller of an older release")
RECORD_BYTES = 10_000
"""50 MB are five answers of `replica.fetch.response.max.bytes`, or more."""


@pytest.mark.parametrize(("release", "protocol"), RELEASES)
def test_catches_up(tmp_path: Path, release: str, protocol: str) -> None:
    with mixed(tmp_path, release, protocol) as both:
        # Batches of up to 3 MB are larger than what a follower asks for of a partition: a leader sends the first one whole.
        both.create("wide", [[KAFKAS, OURS]], **{"max.message.bytes": "4000000"})
        both.create("many", [[KAFKAS, OURS]] * 20)
        both.wait_for("wide", [KAFKAS, OURS], KAFKAS)
        both.member.kill()
        both.wait_for("wide", [KAFKAS], KAFKAS)
        fill(both)
        # It was away.
        both.member.start()
        check(both)
        # Its disk was replaced.
        assert both.member.stop() == 0
        shutil.rmtree(both.member.data)
        both.member.start()
        check(both)
        assert "the response does not come from a Kafka node" not in both.member.said()


def fill(both: Mixed) -> None:
    kafka = both.kafka.bootstrap
    producer_performance(kafka, "many", 3_000, RECORD_BYTES)
    large = {"batch_size": 3_000_000, "linger_ms": 1000, "max_request_size": 4_000_000}
    producer_performance(kafka, "wide", 2_000, RECORD_BYTES, **large)


def check(both: Mixed) -> None:
    for topic, count in (("wide", 1), ("many", 20)):
        for partition in range(count):
            both.wait_for(topic, [KAFKAS, OURS], partition=partition)
            both.check_same(topic, partition)
