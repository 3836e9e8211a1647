"""The page of a backup answers as that of the folder that was backed up, and says which point it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import KAFKA_3, run_ok
from tests.web.conftest import NOW, Answers, answering
from tidelog.clock import ManualClock

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("topics", {"q": "v2"}),
    ("topic", {"topic": "two-partitions"}),
    ("segments", {"topic": "v2-none-ct", "partition": 0}),
    ("counts", {"topic": "v2-none-ct", "buckets": 5}),
    ("records", {"topic": "two-partitions", "order": "time", "limit": 50}),
    ("record", {"topic": "two-partitions", "partition": 0, "offset": 1}),
    ("lookup", {"topic": "v2-none-ct", "partition": 0, "timestamp": NOW}),
    ("cut", {"topic": "v2-none-ct", "end": NOW}),
    ("groups", {}),
    ("lines", {"topic": "v2-none-ct"}),
]
DIFFERENT = {
    "point",  # Only a backup has one.
    "has_map",  # A backup has no time maps.
    "bytes",  # A segment's end may be cut at the high watermark.
    "high_watermark",
    "read_bytes",
    "steps",  # The manifests tell the segments' largest timestamps.
}
"""What a backup need not have as the folder has it."""


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answers, str]]:
    backup = tmp_path_factory.mktemp("page") / "backup"
    run_ok("backup", KAFKA_3, backup)
    with answering(str(backup)) as found:
        yield found, str(backup)


def without(answer: Any, address: str) -> Any:
    if isinstance(answer, dict):
        return {name: without(one, address) for name, one in answer.items() if name not in DIFFERENT}
    if isinstance(answer, list):
        return [without(one, address) for one in answer]
    return answer.replace(f"backup:{address}#1", "ADDRESS").replace(address, "ADDRESS") if isinstance(answer, str) else answer


@pytest.mark.parametrize(("path", "parameters"), ASKED, ids=[path for path, _ in ASKED])
def test_the_answers_are_those_of_the_folder(
    golden: Answers, backed_up: tuple[Answers, str], path: str, parameters: dict[str, Any]
) -> None:
    of_backup, address = backed_up
    assert without(of_backup.ask_again(path, **parameters), address) == without(
        golden.ask_again(path, **parameters), str(KAFKA_3)
    )


def test_the_point_and_the_topics_settings(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    for order in (1, 2):
        with tidelog.Broker(tmp_path / "data", clock=clock) as broker:
            if order == 1:
                broker.create_topic("orders", 1, **{"retention.ms": -1})
            broker.produce("orders", str(order), timestamp_ms=NOW)
        run_ok("backup", tmp_path / "data", tmp_path / "backup")
    for address, sequence in ((tmp_path / "backup", 2), (f"backup:{tmp_path / 'backup'}#1", 1)):
        with answering(str(address), clock=clock) as found:
            listed = found.ask_again("topics")
            assert (listed["point"]["sequence"], listed["topics"][0]["records"]) == (sequence, sequence)
            topic = found.ask("topic", topic="orders")
            assert topic["point"] == listed["point"]
            assert topic["config"]["retention.ms"] == -1
            retention = found.ask("retention", topic="orders")
            assert retention["settings"]["retention.ms"] == {"value": -1, "from": "the topic's, in the backup"}
            assert [one["goes_ms"] for one in retention["partitions"][0]["segments"]] == [None]
            assert any("a backup deletes no segment" in one for one in retention["notes"])
    with answering(str(tmp_path / "data"), clock=clock) as found:
        assert found.ask_again("topics")["point"] is None
        assert not any("backup" in one for one in found.ask("retention", topic="orders")["notes"])
