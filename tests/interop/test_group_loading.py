"""What is committed after any history of ``__consumer_offsets``: Apache Kafka 3.9.1 loads the same log, and is asked.

Histories are those of `tests.groups.histories`: commits and deletions, in transactions of several producers and outside of them,
markers, fenced producers, groups that come and go. One partition's log is as it was written, one has been compacted by Tidelog.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

from tests.broker.groups.offset_requests import fetch_many
from tests.broker.raw import RawClient
from tests.groups.histories import PLACES, PLAIN, Event, Known, Write, as_folder, events_in, known, model, random_history
from tests.interop.test_group_folders import insist
from tests.kafka import Kafka391
from tidelog.groups.offsets_topic import partition_of
from tidelog.model import OFFSETS_TOPIC
from tidelog.records.control import ControlType
from tidelog.sources.files.folder_groups import FolderGroups
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest

PARTITIONS = 2
HISTORIES = 80
LENGTH = 40


def histories() -> list[list[Event]]:
    """Of each partition of the topic one: one of three records, and many random ones, each of its own groups and producers."""
    found: list[list[Event]] = []
    chance = random.Random(15)
    for partition in range(PARTITIONS):
        names = [name for name in (f"group-{number}" for number in range(1000)) if partition_of(name, PARTITIONS) == partition]
        write = Event(0, (Write(names[0], PLACES[0], 5),))
        deleted = Event(PLAIN, (Write(names[0], PLACES[0], None),))
        history = [write, deleted, Event(0, (), ControlType.COMMIT)]
        for number in range(HISTORIES):
            groups = names[1 + 3 * number : 4 + 3 * number]
            for event in random_history(chance, groups, LENGTH):
                producer_id = event.producer_id if event.producer_id == PLAIN else 1 + 3 * number + event.producer_id
                history.append(event._replace(producer_id=producer_id))
        found.append(history)
    return found


def test_what_is_committed(tmp_path: Path) -> None:
    written = histories()
    ours = tmp_path / "ours"
    as_folder(ours, written, compacted={1}, now_ms=int(time.time() * 1000))
    expected = [model(events_in(ours, partition)) for partition in range(PARTITIONS)]
    assert expected[0] == model(written[0])
    everything = Known(
        expected[0].committed | expected[1].committed,
        expected[0].pending | expected[1].pending,
        expected[0].joined | expected[1].joined,
    )
    assert len(everything.committed) > 500
    assert len(everything.pending) > 100
    assert known(FolderGroups(str(ours)).stored()) == everything
    with Kafka391(tmp_path / "kafka", {"offsets.topic.num.partitions": str(PARTITIONS)}) as kafka:
        kafka.create_topic("events", 2)
        with RawClient(("127.0.0.1", kafka.port)) as client:
            insist(lambda: client.ask(FindCoordinatorRequest("anybody", 0), 1))
        kafka.stop()
        for partition in range(PARTITIONS):
            folder = kafka.data / f"{OFFSETS_TOPIC}-{partition}"
            for path in folder.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            for path in (ours / folder.name).iterdir():
                if path.name != "partition.metadata":
                    shutil.copy(path, folder)
        kafka.start()
        with RawClient(("127.0.0.1", kafka.port)) as client:
            assert told(client, sorted({write.group for history in written for event in history for write in event.writes})) == (
                everything.committed,
                everything.pending,
                everything.groups,
            )


def told(client: RawClient, groups: list[str]) -> tuple[Any, Any, Any]:
    """What the broker says is committed, what it says an open transaction is about to commit, and which groups it lists."""
    for partition in range(PARTITIONS):
        name = next(one for one in groups if partition_of(one, PARTITIONS) == partition)
        insist(lambda name=name: fetch_many(client, {name: PLACES})[name], lambda one: one if isinstance(one, int) else 0)  # type: ignore[misc]
    committed: dict[Any, int] = {}
    pending = set()
    for is_stable in (False, True):
        for group, found in fetch_many(client, dict.fromkeys(groups, PLACES), require_stable=is_stable).items():
            assert isinstance(found, dict), (group, found)
            for place in PLACES:
                if is_stable and found[place].error_code:
                    pending.add((group, place))
                elif not is_stable and found[place].offset >= 0:
                    committed[group, place] = found[place].offset
    listed = {one.group_id for one in insist(lambda: client.ask(ListGroupsRequest(), 4)).groups}
    return committed, pending, listed
