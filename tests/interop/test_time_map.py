"""Time maps in a folder of Kafka's own: the broker passes them by, and what a scan reads with them is what the broker serves.

What 3.9.1 does with a file of that name: nothing when it loads a log, after a clean stop or a kill; nothing when it deletes a
segment by retention or replaces one by compaction (the map stays behind, and is about nothing); and a deleted topic's folder goes
with all that is in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.interop import live_topics
from tests.interop.live_topics import LiveTopic, wait_acknowledged
from tests.interop.rows import rows_of
from tests.interop.test_live_folder import read_at_rest
from tests.interop.test_open_folder import wait_for_retention
from tests.kafka import Kafka391
from tests.kafka.clients import Row, consume
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.reader.time_map_file import read_time_map, rebuild_time_map, remove_stale_time_maps, time_map_path, write_time_map

SETTINGS = {
    "grows": {},
    "shrinks": {"retention.bytes": "150000", "file.delete.delay.ms": "0"},
    "compacts": live_topics.SETTINGS["compacts"],
}
RECORDS = 4000


def append(broker: Kafka391, topics: list[LiveTopic], count: int) -> None:
    from confluent_kafka import Producer

    config = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 30, "log_level": 0}
    producer = Producer(config)
    for topic in topics:
        topic.produce(producer, count)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    wait_acknowledged(topics, topics[0].produced)


def map_all(folder: Path) -> dict[str, bytes]:
    """Map every segment that is there; return the maps' contents."""
    for log in sorted(folder.glob("*.log")):
        write_time_map(log, block_bytes=2000)
    return {path.name: path.read_bytes() for path in folder.glob("*.timemap")}


def check_ranges(broker: Kafka391, topic: LiveTopic) -> tidelog.ScanReport:
    """Ranges of every width, wherever they lie: the rows that the broker serves, with little of the log read."""
    served = consume(broker.bootstrap, topic.name)
    total = tidelog.ScanReport()
    for n in range(0, topic.produced, 400):
        for width_ms in (100, 3000):
            start = topic.timestamp(n)
            report = tidelog.ScanReport()
            ours: list[Row] = rows_of(tidelog.scan(broker.data, topic.name, start, start + width_ms, report=report))
            assert ours == [row for row in served if start <= row.timestamp < start + width_ms]
            total += report
    return total


def test_kafka_passes_time_maps_by(tmp_path_factory: pytest.TempPathFactory) -> None:
    properties = live_topics.BROKER | {"log.segment.delete.delay.ms": "100"}
    with Kafka391(tmp_path_factory.mktemp("maps"), properties) as broker:
        topics = [LiveTopic(name) for name in SETTINGS]
        for topic in topics:
            broker.create_topic(topic.name, config=live_topics.BASE | SETTINGS[topic.name])
        folders = {topic.name: broker.partition_folder(topic.name) for topic in topics}
        append(broker, topics, RECORDS)
        maps = {name: map_all(folder) for name, folder in folders.items()}
        assert all(maps.values())

        # Rolled, deleted and compacted while maps lie beside the segments.
        append(broker, topics, RECORDS)
        logs = {name: {path.stem for path in folder.glob("*.log")} for name, folder in folders.items()}
        wait_until(lambda: min(map(int, (path.stem for path in folders["shrinks"].glob("*.log")))) > RECORDS, "retention")
        wait_for_retention(broker, topics[1])
        assert len(logs["grows"]) > len(maps["grows"])
        for topic in topics[:2]:
            report = check_ranges(broker, topic)
            assert report.blocks_skipped > report.blocks_read or topic.name == "shrinks"
        kept = {name: {path.name: path.read_bytes() for path in folder.glob("*.timemap")} for name, folder in folders.items()}
        assert kept == maps

        # Loaded after a kill, and after a clean stop.
        for end in (broker.kill, broker.stop):
            ours, theirs = read_at_rest(broker, "compacts")
            assert ours == theirs
            maps = {name: map_all(folder) for name, folder in folders.items()}
            end()
            broker.start()
            for topic in topics[:2]:
                served = consume(broker.bootstrap, topic.name)
                assert served == [topic.row(n) for n in range(served[0].offset, topic.produced)]
                check_ranges(broker, topic)
            for name, found in maps.items():
                assert {path.name: path.read_bytes() for path in folders[name].glob("*.timemap")} == found
        printed = (broker.folder / "broker.out").read_text()
        assert "timemap" not in printed
        check_ranges(broker, topics[2])

        # What is about nothing any more goes when we say so, and a map made again agrees.
        for name, folder in folders.items():
            bases = {int(path.stem) for path in folder.glob("*.log")}
            stale = set(remove_stale_time_maps(folder, bases))
            assert all(int(path.stem) not in bases for path in stale)
            assert bool(stale) == (name != "grows")
        for log in folders["compacts"].glob("*.log"):
            found = rebuild_time_map(log, block_bytes=2000)
            assert found == read_time_map(time_map_path(log))
        check_ranges(broker, topics[2])

        # A deleted topic's folder goes whole.
        assert list(folders["grows"].glob("*.timemap"))
        for deleted in broker.admin.delete_topics(["grows"], request_timeout=PATIENCE_S).values():
            deleted.result(PATIENCE_S)
        broker.topics.pop("grows", None)
        wait_until(
            lambda: not list(broker.data.glob("grows-*")) and not list(broker.data.glob("grows*-delete")), "the folder to go"
        )
