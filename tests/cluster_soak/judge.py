"""Whether every promise was kept: what was acknowledged is read where it was promised, once; replicas are equal."""

from __future__ import annotations

import hashlib
import subprocess
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.cluster_soak.group_reader import GroupReader
from tests.cluster_soak.senders import SOMEWHERE, IdempotentSender, Outcome, TransactionalSender
from tests.cluster_soak.topics import ORDERS, PARTITIONS, TRANSACTED, number_of, place_of, time_of
from tests.kafka.java import wait_until
from tests.kafka.tidelog_node import TIDELOG
from tidelog.reader.log import Log
from tidelog.records.batch import BatchHeader

Place = tuple[str, int]
PATIENCE_S = 600
CLOSING = b"-1 closing"


@dataclass
class Found:
    """What is in the logs of partitions: by offset the number of each record, and its time."""

    numbers: dict[Place, array[int]] = field(default_factory=dict)
    times: dict[Place, array[int]] = field(default_factory=dict)


class Double(NamedTuple):
    """A record that is there twice: its number, and where."""

    place: Place
    number: int
    first: int
    second: int

    def batches(self, data: Path) -> list[BatchHeader]:
        """Return the batches that have it, in the folder of a broker that has stopped."""
        topic, number = self.place
        with Log.open(data / f"{topic}-{number}") as log:
            return [next(log.headers(offset)) for offset in (self.first, self.second)]


def judge_doubles(doubles: Iterable[Double], data: Path, wrong: list[str]) -> tuple[int, int]:
    """Return how many records are there twice by a broker's fault, and how many their producer sent again in a new epoch.

    In a new epoch sequence numbers begin at 0: no broker can know by them what was in the log before.
    """
    twice = again = 0
    for double in doubles:
        batches = double.batches(data)
        first, second = ((one.producer_id, one.producer_epoch) for one in batches)
        is_again = first[0] == second[0] and first[1] < second[1]
        again, twice = again + is_again, twice + (not is_again)
        if not is_again:
            wrong.append(f"{double.place}: {double.number} is there twice: {' and '.join(map(describe, batches))}")
    return twice, again


def describe(batch: BatchHeader) -> str:
    return (
        f"{batch.base_offset}..{batch.last_offset} of leader epoch {batch.leader_epoch}, producer {batch.producer_id}"
        f" in epoch {batch.producer_epoch} from sequence {batch.base_sequence}"
    )


def read(bootstrap: str, places: Iterable[Place], isolation: str) -> Iterator[Message]:
    """Read these partitions from their beginnings to their present ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    waiting = set(places)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in waiting])
        end = time.monotonic() + PATIENCE_S
        while waiting:
            for message in consumer.consume(2000, 0.5):
                error = message.error()
                end = time.monotonic() + PATIENCE_S
                if error is None:
                    yield message
                elif error.name() == "_PARTITION_EOF":
                    waiting.discard((str(message.topic()), int(message.partition() or 0)))
            if time.monotonic() > end:
                raise TimeoutError(f"nothing was read of {sorted(waiting)} for {PATIENCE_S} s")
    finally:
        consumer.close()


def read_numbered(bootstrap: str, places: Iterable[Place], wrong: list[str]) -> Found:
    """Read partitions of numbered records; they have no gaps."""
    found = Found()
    for place in places:
        found.numbers[place], found.times[place] = array("q"), array("q")
    for message in read(bootstrap, list(found.numbers), "read_uncommitted"):
        place, value = (str(message.topic()), int(message.partition() or 0)), message.value()
        assert value is not None
        numbers = found.numbers[place]
        if message.offset() != len(numbers):
            wrong.append(f"{place}: offset {message.offset()} comes after {len(numbers) - 1}")
        numbers.append(number_of(value))
        found.times[place].append(message.timestamp()[1])
    return found


def check_sent(sender: IdempotentSender, found: Found, wrong: list[str]) -> tuple[int, list[Double]]:
    """Return how many acknowledged records are not where they were promised to be, and which records are there twice."""
    lost, doubles = 0, []
    seen = array("q", [-1]) * len(sender.offsets)
    for place, numbers in found.numbers.items():
        for offset, number in enumerate(numbers):
            if not 0 <= number < len(seen) or place_of(number) != place:
                wrong.append(f"{place} {offset}: nobody has sent {number}")
            elif seen[number] >= 0:
                doubles.append(Double(place, number, seen[number], offset))
            else:
                seen[number] = offset
    for number, offset in enumerate(sender.offsets):
        place = place_of(number)
        numbers = found.numbers[place]
        if offset == SOMEWHERE and seen[number] < 0:
            lost += 1
            wrong.append(f"{place}: {number} was acknowledged, and is nowhere")
        if offset < 0:
            continue
        if offset >= len(numbers) or numbers[offset] != number:
            lost += 1
            wrong.append(f"{place} {offset}: {number} was acknowledged, and is not there")
        elif place[0] == ORDERS and found.times[place][offset] != time_of(number):
            wrong.append(f"{place} {offset}: {number} has another time")
    return lost, doubles


def check_transactions(senders: Iterable[TransactionalSender], bootstrap: str, wrong: list[str]) -> tuple[int, int]:
    """Return the same of committed transactions; those that were aborted are not seen, and others whole or not at all."""
    values: Counter[str] = Counter()
    places: dict[Place, bytes] = {}
    for message in read(bootstrap, [(TRANSACTED, number) for number in range(PARTITIONS[TRANSACTED])], "read_committed"):
        value = message.value()
        assert value is not None
        values[value.decode()] += 1
        places[str(message.partition()), int(message.offset() or 0)] = value
    lost, twice = 0, sum(count - 1 for count in values.values())
    wrong += [f"transactions: {value} is there {count} times" for value, count in values.items() if count > 1]
    counts = Counter(value.rsplit(" ", 1)[0] for value in values)
    for sender in senders:
        for number, (size, outcome) in enumerate(zip(sender.sizes, sender.outcomes, strict=True)):
            there = counts[f"{sender._name} {number}"]
            allowed = {Outcome.COMMITTED: (size,), Outcome.ABORTED: (0,)}.get(Outcome(outcome), (0, size))
            if there not in allowed:
                lost += outcome == Outcome.COMMITTED
                wrong.append(f"transaction {sender._name} {number}, {Outcome(outcome).name}: {there} of {size} records")
        for (partition, offset), value in sender.offsets.items():
            if places.get((str(partition), offset)) != value:
                lost += 1
                wrong.append(f"transactions {partition} {offset}: {value!r} was acknowledged, and is not there")
    return lost, twice


def check_reader(reader: GroupReader, found: Found, wrong: list[str]) -> None:
    """What the group was sent is what is there."""
    wrong += reader.wrong
    for place, numbers in found.numbers.items():
        seen = reader.seen[place]
        wrong += [
            f"{place} {offset}: the group was sent another record"
            for offset, number in enumerate(numbers)
            if seen.get(offset) != number
        ]


# --- replicas


def write_closing(bootstrap: str, places: Iterable[Place]) -> None:
    """Write a record to each partition: epochs without one are noted by their leaders only."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for topic, number in places:
        producer.produce(topic, CLOSING, partition=number, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(PATIENCE_S) == 0 and not failed, failed


def wait_equal(folders: Mapping[int, Path], places: Iterable[Place], wrong: list[str]) -> int:
    """Wait until all replicas have the same bytes and the same leader epochs; return how many partitions were compared."""
    places = list(places)

    def differing() -> list[str]:
        return [
            f"{topic}-{number}: replicas differ: {seen}"
            for topic, number in places
            if len(set((seen := {node_id: _sums(folder / f"{topic}-{number}") for node_id, folder in folders.items()}).values()))
            > 1
        ]

    try:
        wait_until(lambda: not differing(), "equal replicas", PATIENCE_S)
    except TimeoutError:
        wrong += differing()
    return len(places)


def _sums(folder: Path) -> tuple[str, str]:
    """Return the sha256 of a replica's records, and its leader epochs."""
    digest = hashlib.sha256()
    try:
        for path in sorted(folder.glob("*.log")):
            digest.update(path.read_bytes())
        return digest.hexdigest(), " ".join((folder / "leader-epoch-checkpoint").read_text().split())
    except FileNotFoundError as error:
        return str(error), ""


def verify_replicas(folders: Iterable[Path], wrong: list[str]) -> str:
    """Return what `tidelog verify --replicas` says at last about the folders of brokers that have stopped."""
    command = [TIDELOG, "verify", "--replicas", *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        wrong.append(f"tidelog verify --replicas ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
