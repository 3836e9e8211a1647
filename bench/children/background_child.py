"""The process that `broker.background_bench` starts: it times one background task of an embedded broker, from when the task may
begin until its end.

python background_child.py ROW FOLDER SCALE      one JSON line: seconds, and the process's processor seconds meanwhile

It runs under the Python of any checkout: it uses only `tidelog.Broker`, `LogManager`, a Kafka client, and the files in the data
folder.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

import tidelog
from tidelog.clock import ManualClock, SystemClock
from tidelog.storage.log_manager import LogManager

T = TypeVar("T")

PATIENCE_S = 300
LAG = {"min.compaction.lag.ms": str(7 * 24 * 3600 * 1000), "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SOON = {"log_initial_task_delay_ms": 100, "log_segment_delete_delay_ms": 0}


class Client:
    """Fills topics of a broker, and changes their settings."""

    def __init__(self, port: int) -> None:
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
        self.admin = AdminClient(settings)
        self._settings = settings

    def create(self, topic: str, partitions: int, **config: str) -> None:
        names = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=names)])[topic].result(PATIENCE_S)

    def fill(
        self, topic: str, partitions: int, records: int, value_bytes: int, keys: int = 1000, *, is_idempotent: bool = False
    ) -> None:
        batch_bytes = max(12_000, value_bytes + 500)  # Batches are smaller than a segment, so that segments are rolled.
        producer = Producer(
            {**self._settings, "linger.ms": 20, "batch.size": batch_bytes, "acks": "all", "enable.idempotence": is_idempotent}
        )
        errors = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                errors.append(error)

        value = bytes(value_bytes)
        for number in range(records):
            for partition in range(partitions):
                while True:
                    try:
                        key = b"key-%d" % (number % keys)
                        producer.produce(topic, key=key, value=value, partition=partition, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
        if producer.flush(PATIENCE_S) or errors:
            raise RuntimeError(f"{topic} was not filled: {errors[:1]}")

    def committed(self, group: str) -> int:
        """Return the number of a group's committed offsets; -1 while its coordinator is loading."""
        asked = ConsumerGroupTopicPartitions(group)
        try:
            return len(self.admin.list_consumer_group_offsets([asked])[group].result(PATIENCE_S).topic_partitions)
        except KafkaException:
            return -1

    def set(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@contextmanager
def served(folder: Path, **properties: object) -> Iterator[Client]:
    with tidelog.Broker(folder, **{**SOON, **properties}) as broker:  # type: ignore[arg-type]
        yield Client(broker.port)


def offsets(path: Path, topic: str) -> dict[int, int]:
    """Return the offsets of a topic's partitions in a checkpoint."""
    try:
        lines = path.read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    return {int(one[1]): int(one[2]) for one in map(str.split, lines) if one[0] == topic}


def until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {PATIENCE_S} s")
        time.sleep(0.01)


class Clock:
    """Measures elapsed and processor seconds since it was created."""

    def __init__(self) -> None:
        self._began, self._processor = time.monotonic(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.monotonic() - self._began, "processor_s": time.process_time() - self._processor}


def compaction(folder: Path, partitions: int, records: int, segment_bytes: int) -> dict[str, float]:
    with served(folder, log_cleaner_backoff_ms=200) as client:
        client.create("t", partitions, segment_bytes=str(segment_bytes), **LAG)
        client.fill("t", partitions, records, 100)
        clock = Clock()
        client.set("t", "min.compaction.lag.ms", "0")
        until(lambda: len(offsets(folder / "cleaner-offset-checkpoint", "t")) == partitions)
        return clock.read()


def retention(folder: Path, partitions: int, segments: int) -> dict[str, float]:
    with served(folder, log_retention_check_interval_ms=200) as client:
        client.create("t", partitions, segment_bytes="20000", retention_ms="-1", retention_bytes="-1")
        client.fill("t", partitions, segments, 15_000)
        clock = Clock()
        client.set("t", "retention.bytes", "1")
        until(lambda: sum(1 for _ in folder.glob("t-*/*.log")) <= 2 * partitions)
        return clock.read()


def records_deletion(folder: Path, partitions: int, segments: int) -> dict[str, float]:
    """From DeleteRecords up to the ends until the segments before the active ones are gone."""
    with served(folder, log_retention_check_interval_ms=200) as client:
        client.create("t", partitions, segment_bytes="20000", file_delete_delay_ms="0", retention_ms="-1")
        client.fill("t", partitions, segments, 15_000)
        clock = Clock()
        wanted = [TopicPartition("t", partition, segments) for partition in range(partitions)]
        for future in client.admin.delete_records(wanted).values():
            future.result(PATIENCE_S)
        until(lambda: sum(1 for _ in folder.glob("t-*/*.log")) <= partitions)
        return clock.read()


def snapshots(folder: Path, partitions: int, segments: int) -> dict[str, float]:
    """From the first record of an idempotent producer until each rolled segment has a snapshot of producers at its end."""
    with served(folder) as client:
        client.create("t", partitions, segment_bytes="20000", retention_ms="-1")
        clock = Clock()
        client.fill("t", partitions, segments, 15_000, is_idempotent=True)

        def are_taken() -> bool:
            logs = {path.with_suffix("") for path in folder.glob("t-*/*.log") if int(path.stem)}
            return len(logs) == (segments - 1) * partitions and logs <= {
                path.with_suffix("") for path in folder.glob("t-*/*.snapshot")
            }

        until(are_taken)
        return clock.read()


def metadata_snapshot(folder: Path, topics: int) -> dict[str, float]:
    """From when a snapshot of the metadata log is due, after 6 MB of changes, until it exists. Empty in a checkout without such a
    log.
    """
    clock = ManualClock(1_700_000_000_000)
    with tidelog.Broker(folder, clock=clock) as broker:
        client = Client(broker.port)
        for number in range(topics):
            client.create(f"t{number}", 1)
        value = ",".join(f"{partition}:1" for partition in range(4000))
        before = set(folder.glob("__cluster_metadata-0/*.checkpoint"))
        for first in range(6_000_000 // len(value) // topics + 1):
            asked = []
            for number in range(topics):
                entry = ConfigEntry(
                    "leader.replication.throttled.replicas", f"{first}:1,{value}", incremental_operation=AlterConfigOpType.SET
                )
                asked.append(ConfigResource(ResourceType.TOPIC, f"t{number}", incremental_configs=[entry]))
            for future in client.admin.incremental_alter_configs(asked).values():
                future.result(PATIENCE_S)
        if not (folder / "__cluster_metadata-0").exists():
            return {}
        measured = Clock()
        clock.advance(60_000)
        until(lambda: bool(set(folder.glob("__cluster_metadata-0/*.checkpoint")) - before))
        return measured.read()


def truncation(folder: Path, partitions: int, segments: int) -> dict[str, float]:
    """The second half of each log is removed, by the calls that a follower makes after a change of leaders."""
    with served(folder) as client:
        client.create("t", partitions, segment_bytes="100000")
        client.fill("t", partitions, 6 * segments, 15_000, is_idempotent=True)
    with LogManager(folder, SystemClock()) as manager:
        clock = Clock()
        for partition in range(partitions):
            log = manager.log("t", partition)
            offset = log.log_end_offset // 2
            if hasattr(log, "producers_at"):
                log.truncate_to(offset, run(log.producers_at(offset)))
            else:
                log.truncate_to(offset)
        return clock.read()


def run(steps: Generator[object, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def deletion(folder: Path, partitions: int) -> dict[str, float]:
    with served(folder) as client:
        client.create("t", partitions, file_delete_delay_ms="0")
        client.fill("t", partitions, 2, 100)
        clock = Clock()
        client.admin.delete_topics(["t"])["t"].result(PATIENCE_S)
        until(lambda: not any(folder.glob("t[-.]*")))
        return clock.read()


def time_maps(folder: Path, megabytes: int) -> dict[str, float]:
    with served(folder) as client:
        client.create("t", 1, segment_bytes=str(1 << 20))
        clock = Clock()
        client.fill("t", 1, megabytes * 10, 100_000)
        until(lambda: sum(1 for _ in folder.glob("t-0/*.timemap")) >= sum(1 for _ in folder.glob("t-0/*.log")) - 1)
        return clock.read()


def flushes(folder: Path, partitions: int, segments: int) -> dict[str, float]:
    with served(folder, log_flush_offset_checkpoint_interval_ms=200) as client:
        client.create("t", partitions, segment_bytes="20000")
        clock = Clock()
        client.fill("t", partitions, segments, 15_000)

        def are_flushed() -> bool:
            points = offsets(folder / "recovery-point-offset-checkpoint", "t")
            actives = {int(d.name[2:]): max(int(log.stem) for log in d.glob("*.log")) for d in folder.glob("t-*")}
            return all(points.get(partition, 0) >= active for partition, active in actives.items())

        until(are_flushed)
        return clock.read()


def checkpoints(folder: Path, partitions: int) -> dict[str, float]:
    with served(folder, replica_high_watermark_checkpoint_interval_ms=200) as client:
        client.create("t", partitions)
        client.fill("t", partitions, 1, 10)
        # The first record of each partition begins a leader epoch, which is another task.
        epochs = [folder / f"t-{partition}" / "leader-epoch-checkpoint" for partition in range(partitions)]
        until(lambda: all(path.exists() and len(path.read_text().splitlines()) > 2 for path in epochs))
        clock = Clock()
        for round_number in range(2, 12):
            client.fill("t", partitions, 1, 10)
            until(
                lambda: sum(offsets(folder / "replication-offset-checkpoint", "t").values()) >= round_number * partitions  # noqa: B023
            )
        return clock.read()


def flush_ms(folder: Path, partitions: int) -> dict[str, float]:
    with served(folder, log_flush_scheduler_interval_ms=200, log_flush_offset_checkpoint_interval_ms=200) as client:
        client.create("t", partitions, flush_ms="100")
        clock = Clock()
        client.fill("t", partitions, 3, 1000)
        until(lambda: sum(offsets(folder / "recovery-point-offset-checkpoint", "t").values()) == 3 * partitions)
        return clock.read()


def loading(folder: Path, partitions: int, *, is_clean: bool) -> dict[str, float]:
    broker = tidelog.Broker(folder, **SOON)  # type: ignore[arg-type]
    with broker:
        client = Client(broker.port)
        client.create("t", partitions, segment_bytes="20000")
        client.fill("t", partitions, 4, 15_000)
        if not is_clean:
            broker.kill()
    clock = Clock()
    with served(folder) as client:
        return clock.read()


def groups(folder: Path, count: int, partitions: int) -> dict[str, float]:
    """From the start until the offsets of each group can be fetched."""
    with served(folder) as client:
        client.create("t", partitions)
        for number in range(count):
            offsets_of = [TopicPartition("t", partition, number) for partition in range(partitions)]
            wanted = ConsumerGroupTopicPartitions(f"group-{number}", offsets_of)
            client.admin.alter_consumer_group_offsets([wanted])[wanted.group_id].result(PATIENCE_S)
    clock = Clock()
    with served(folder) as client:
        for number in range(0, count, 10):
            until(lambda: client.committed(f"group-{number}") == partitions)  # noqa: B023
        return clock.read()


ROWS: dict[str, Callable[[Path, float], dict[str, float]]] = {
    "compaction, 60 small partitions": lambda folder, scale: compaction(folder, max(3, int(60 * scale)), 600, 20_000),
    "compaction, one log of 60 MB": lambda folder, scale: compaction(folder, 1, max(9000, int(500_000 * scale)), 1 << 20),
    "retention, 200 partitions": lambda folder, scale: retention(folder, max(3, int(200 * scale)), 8),
    "DeleteRecords of 200 partitions": lambda folder, scale: records_deletion(folder, max(3, int(200 * scale)), 8),
    "snapshots of producers at 400 rolls": lambda folder, scale: snapshots(folder, 40, max(2, int(11 * scale))),
    "a metadata snapshot after 6 MB of changes": lambda folder, scale: metadata_snapshot(folder, 20),
    "truncation of 100 logs by half": lambda folder, scale: truncation(folder, max(3, int(100 * scale)), 8),
    "deletion of 500 partitions": lambda folder, scale: deletion(folder, max(5, int(500 * scale))),
    "time maps of 216 segments of 1 MB": lambda folder, scale: time_maps(folder, max(10, int(216 * scale))),
    "flushes of 400 rolled segments": lambda folder, scale: flushes(folder, 40, max(2, int(10 * scale))),
    "10 checkpoints of 500 high watermarks": lambda folder, scale: checkpoints(folder, max(5, int(500 * scale))),
    "flush.ms of 200 partitions": lambda folder, scale: flush_ms(folder, max(5, int(200 * scale))),
    "start after a clean end, 500 partitions": lambda folder, scale: loading(folder, max(5, int(500 * scale)), is_clean=True),
    "start after a kill, 500 partitions": lambda folder, scale: loading(folder, max(5, int(500 * scale)), is_clean=False),
    "loading 2,000 groups of 50 offsets": lambda folder, scale: groups(folder, max(10, int(2000 * scale)), 50),
}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(ROWS[sys.argv[1]](Path(sys.argv[2]), float(sys.argv[3]))))
