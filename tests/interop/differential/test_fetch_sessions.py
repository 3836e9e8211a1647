"""Fetches of many partitions, sessions, and leader epochs: Kafka 3.9.1 and Tidelog answer alike."""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.requests import produce
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T0 = 1_600_000_000_000
PLAIN, PACKED, CUT, ZSTD, UNKNOWN = "fetched-plain", "fetched-packed", "fetched-cut", "fetched-zstd", "fetched-unknown"
VERSIONS = range(18)
UNKNOWN_ID = uuid.UUID(int=77)


def records(count: int, first_time: int, size: int = 100) -> list[Record]:
    return [Record(i, first_time + i, CREATE_TIME, b"key", bytes([i % 251]) * size) for i in range(count)]


@pytest.fixture(scope="module")
def filled(pair: Pair) -> Iterator[Pair]:
    """Three partitions with small batches, a large one, and nothing; compressed ones; a log that was cut at its start."""
    pair.create(PLAIN, partitions=3)
    pair.create(PACKED, CUT)
    pair.create(ZSTD, compression_type="zstd")
    for number in range(6):
        pair.ask("fill", produce(PLAIN, bytes(build_batch_v2(records(10, T0 + 100 * number)))), 9)
        pair.ask("fill", produce(CUT, bytes(build_batch_v2(records(10, T0 + 100 * number)))), 9)
    pair.ask("fill", produce(PLAIN, bytes(build_batch_v2(records(200, T0, 1000))), partition=1), 9)
    for codec in (Codec.GZIP, Codec.NONE, Codec.LZ4, Codec.SNAPPY):
        pair.ask("fill", produce(PACKED, bytes(build_batch_v2(records(50, T0), codec=codec))), 9)
    pair.ask("fill", produce(ZSTD, bytes(build_batch_v2(records(50, T0)))), 9)
    pair.ask("cut", DeleteRecordsRequest([DeleteRecordsTopic(CUT, [DeleteRecordsPartition(0, 13)])], 10_000), 2)
    pair.differences.clear()
    yield pair


def topic_of(side: Side, name: str, partitions: list[FetchPartition]) -> FetchTopic:
    return FetchTopic(name, side.topic_ids.get(name, UNKNOWN_ID), partitions)


def wanted(partition: int, offset: int, max_bytes: int = 1 << 20, epoch: int = -1, last_fetched: int = -1) -> FetchPartition:
    return FetchPartition(
        partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched,
        partition_max_bytes=max_bytes,
    )


def fetch_of(*topics: tuple[str, list[FetchPartition]], version: int, **more: Any) -> Callable[[Side], FetchRequest]:
    def make(side: Side) -> FetchRequest:
        fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20} | more
        replica = fields.pop("replica_id", -1)
        if version >= 15:
            fields["replica_state"] = ReplicaState(replica)
        else:
            fields["replica_id"] = replica
        if version < 7:
            fields.pop("session_id", None)
            fields.pop("session_epoch", None)
        return FetchRequest(topics=[topic_of(side, name, partitions) for name, partitions in topics], **fields)

    return make


@pytest.mark.parametrize("version", VERSIONS)
def test_one_partition(filled: Pair, version: int) -> None:
    for topic, offset in itertools.product((PLAIN, PACKED, CUT), (-1, 0, 5, 13, 17, 55, 59, 60, 61)):
        for max_bytes in (10, 1300, 1 << 20):
            label = f"{topic} {offset} max {max_bytes}"
            filled.ask(label, fetch_of((topic, [wanted(0, offset, max_bytes)]), version=version), version)
    for offset in (0, 20, 50):
        filled.ask(f"zstd {offset}", fetch_of((ZSTD, [wanted(0, offset)]), version=version), version)
    filled.ask("large", fetch_of((PLAIN, [wanted(1, 100, 1000)]), version=version), version)
    filled.ask("negative size", fetch_of((PLAIN, [wanted(0, 3, -5)]), version=version), version)
    filled.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_many_partitions(filled: Pair, version: int) -> None:
    rng = random.Random(version)
    for case in range(20):
        topics = []
        for name in rng.sample([PLAIN, PACKED, CUT, UNKNOWN, PLAIN], rng.randint(1, 5)):
            partitions = [
                wanted(
                    rng.choice([0, 0, 1, 2, 3, 7]),
                    rng.choice([0, 0, 3, 14, 30, 60, 100]),
                    rng.choice([0, 50, 1500, 5000, 1 << 20]),
                    rng.choice([-1, -1, -1, 0, 0, 1, -5]),
                    rng.choice([-1, -1, -1, 0, 1]),
                )
                for _ in range(rng.randint(0, 3))
            ]
            topics.append((name, partitions))
        request = fetch_of(
            *topics,
            version=version,
            max_bytes=rng.choice([0, 100, 2000, 10_000, 1 << 22]),
            isolation_level=rng.choice([0, 0, 1]),
            replica_id=rng.choice([-1, -1, -1, -1, -2, 1, 5]),
        )
        filled.ask(f"many {case}", request, version)
    filled.check()


@pytest.mark.parametrize("version", [7, 12, 13, 16, 17])
def test_session(filled: Pair, version: int) -> None:
    ids: dict[str, int] = {}

    def ask(
        label: str, epoch: int, *topics: tuple[str, list[FetchPartition]], forget: dict[str, list[int]] | None = None
    ) -> None:
        make = fetch_of(*topics, version=version)

        def in_session(side: Side) -> FetchRequest:
            request = make(side)
            request.session_id, request.session_epoch = ids.get(side.name, 0), epoch
            request.forgotten_topics_data = [
                ForgottenTopic(name, side.topic_ids.get(name, UNKNOWN_ID), indexes) for name, indexes in (forget or {}).items()
            ]
            return request

        filled.ask(f"session {label}", in_session, version)
        for side in filled.sides:
            if side.last.session_id:
                ids[side.name] = side.last.session_id

    ask("begins", 0, (PLAIN, [wanted(0, 0, 100), wanted(1, 0, 100), wanted(2, 0)]), (UNKNOWN, [wanted(0, 0)]))
    ask("goes on", 1)
    ask("again", 2)
    ask("at the end", 3, (PLAIN, [wanted(0, 60), wanted(1, 200)]))
    ask("nothing new", 4)
    ask("adds", 5, (CUT, [wanted(0, 20, 100)]), (PACKED, [wanted(0, 0, 100)]))
    ask("turns", 6)
    ask("changes and forgets", 7, (CUT, [wanted(0, 60)]), forget={PACKED: [0, 5], UNKNOWN: [0]})
    ask("an error comes", 8, (CUT, [wanted(0, 3)]))
    ask("and stays", 9)
    ask("and goes", 10, (CUT, [wanted(0, 60)]))
    ask("once told", 11)
    ask("the wrong epoch", 11)
    ask("still there", 12)
    ask("forgets all", 13, forget={PLAIN: [0, 1, 2], CUT: [0]})
    ask("is gone", 14)
    ids.clear()
    ask("another begins", 0, (PLAIN, [wanted(0, 0, 100)]))
    ask("and is replaced", 0, (PLAIN, [wanted(1, 0, 100)]))
    ask("goes on", 1)
    ask("ends", -1, (PLAIN, [wanted(2, 0)]))
    ids.update({"Kafka": 12345, "Tidelog": 12345})
    ask("unknown", 1, (PLAIN, [wanted(0, 0)]))
    ids.clear()
    ask("of nothing", 0)
    ask("goes on", 1)
    filled.check()


def test_session_of_another_kind(filled: Pair) -> None:
    ids: dict[str, int] = {}

    def with_epoch(epoch: int, version: int) -> Callable[[Side], FetchRequest]:
        make = fetch_of((PLAIN, [wanted(0, 0, 100)]), version=version)

        def in_session(side: Side) -> FetchRequest:
            request = make(side)
            request.session_id, request.session_epoch = ids.get(side.name, 0), epoch
            return request

        return in_session

    for first, second in ((12, 13), (13, 12)):
        ids.clear()
        filled.ask("kind begins", with_epoch(0, first), first)
        ids |= {side.name: side.last.session_id for side in filled.sides}
        filled.ask("kind changes", with_epoch(1, second), second)
    filled.check()


def seconds(side: Side, request: FetchRequest) -> float:
    began = time.monotonic()
    side.ask(request, 12, has_answer=True)
    return time.monotonic() - began


def test_waiting(filled: Pair) -> None:
    """Who waits waits as long, and who has a reason not to does not."""
    cases = {
        "for nothing": ([(PLAIN, [wanted(2, 0)])], 1),
        "for too much": ([(PLAIN, [wanted(0, 50)])], 1 << 20),
        "with enough": ([(PLAIN, [wanted(0, 50)]), (PLAIN, [wanted(2, 0)])], 100),
        "with an error": ([(PLAIN, [wanted(2, 0)]), (CUT, [wanted(0, 0)])], 1),
        "beside an unknown one": ([(PLAIN, [wanted(2, 0), wanted(9, 0)]), (UNKNOWN, [wanted(0, 0)])], 1),
        "for unknown ones only": ([(UNKNOWN, [wanted(0, 0)])], 1),
        "for none at all": ([], 1),
        "with no minimum": ([(PLAIN, [wanted(2, 0)])], 0),
    }
    for label, (topics, min_bytes) in cases.items():
        request = fetch_of(*topics, version=12, min_bytes=min_bytes, max_wait_ms=300)
        # A busy machine, too, makes one wait: who has to does so each time.
        waited = {side.name: all(seconds(side, request(side)) > 0.25 for _ in range(3)) for side in filled.sides}
        assert waited["Kafka"] == waited["Tidelog"], label
        filled.ask(f"waiting {label}", fetch_of(*topics, version=12, min_bytes=min_bytes, max_wait_ms=20), 12)
    filled.check()


@pytest.mark.parametrize("version", range(10))
def test_list_offsets(filled: Pair, version: int) -> None:
    times = (-7, -6, -5, -4, -3, -2, -1, 0, T0, T0 + 55, T0 + 203, T0 + 505, T0 + 509, T0 + 510)
    for replica_id, isolation, epoch in ((-1, 0, -1), (-1, 1, 0), (-2, 0, 1), (1, 0, -1)):
        for timestamp in times:
            if version == 0 and timestamp >= 0:
                continue  # By the files' times.
            topics = [
                ListOffsetsTopic(topic, [ListOffsetsPartition(partition, epoch, timestamp, 3) for partition in (0, 2)])
                for topic in (PLAIN, PACKED, CUT, UNKNOWN)
            ]
            filled.ask(
                f"list {timestamp} as {replica_id} knowing {epoch}", ListOffsetsRequest(replica_id, isolation, topics), version
            )
    twice = [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(1, -1, -2), ListOffsetsPartition(0, -1, -2)]
    filled.ask("list twice", ListOffsetsRequest(-1, 0, [ListOffsetsTopic(PLAIN, twice)]), version)
    filled.ask("list nothing", ListOffsetsRequest(-1, 0, [ListOffsetsTopic(PLAIN, [])]), version)
    filled.check()


@pytest.mark.parametrize("version", range(5))
def test_leader_epochs(filled: Pair, version: int) -> None:
    for epoch, current in itertools.product((-1, 0, 1, 5), (-1, 0, 1, -5) if version >= 2 else (-1,)):
        topics = [
            OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(partition, current, epoch) for partition in (0, 2, 9)])
            for topic in (PLAIN, CUT, UNKNOWN)
        ]
        filled.ask(f"epoch {epoch} knowing {current}", OffsetForLeaderEpochRequest(-2, topics), version)
    twice = [OffsetForLeaderTopic(PLAIN, [OffsetForLeaderPartition(index, -1, 0)]) for index in (0, 1)]
    filled.ask("epoch twice", OffsetForLeaderEpochRequest(-2, twice), version)
    filled.check()
