"""Produce, every version: good and bad records into topics of every kind, and what both logs hold afterwards."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.interop.differential.pair import Pair
from tests.interop.differential.record_sets import T, bad_sets_legacy, bad_sets_v2, build, good_sets, records
from tests.interop.differential.requests import fetch, produce
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "append-time": {"message_timestamp_type": "LogAppendTime"},
    "compact": {"cleanup_policy": "compact"},
    "uncompressed": {"compression_type": "uncompressed"},
    "gzip": {"compression_type": "gzip"},
    "lz4": {"compression_type": "lz4"},
    "zstd": {"compression_type": "zstd", "message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": 100},
    "small-segments": {"segment_bytes": 150},
    "bounded": {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 1000},
}


def compare_logs(pair: Pair, label: str, topic: str) -> None:
    """Every byte of both logs, as stored."""
    pair.ask(f"{label}: the log", fetch(topic), 11)


@pytest.mark.parametrize("kind", KINDS)
def test_format_v2(pair: Pair, kind: str) -> None:
    topic = f"produce-{kind}"
    pair.create(topic, **KINDS[kind])
    for version in (3, 8, 11):
        for one in good_sets(2):
            pair.ask(f"{kind}: {one.name}", produce(topic, one.data), version)
    for version in (7, 10):
        for one in bad_sets_v2():
            if one.data is not None:
                pair.ask(f"{kind}: {one.name}", produce(topic, one.data), version)
    compare_logs(pair, kind, topic)
    pair.check()


@pytest.mark.parametrize("kind", ["plain", "append-time", "compact", "gzip", "small", "bounded"])
def test_older_formats(pair: Pair, kind: str) -> None:
    """What is stored is format v2, whatever comes."""
    topic = f"produce-old-{kind}"
    pair.create(topic, **KINDS[kind])
    for version in (0, 1, 2):
        for magic in (0, 1):
            for one in [*good_sets(magic), *bad_sets_legacy(magic)]:
                if one.data is not None and (version or magic == 0):
                    pair.ask(f"{kind} magic {magic}: {one.name}", produce(topic, one.data), version)
    for version in (0, 2):
        for one in good_sets(2):
            pair.ask(f"{kind} magic 2: {one.name}", produce(topic, one.data), version)
    for magic in (0, 1):
        for one in good_sets(magic):
            pair.ask(f"{kind} magic {magic} too late: {one.name}", produce(topic, one.data), 3)
    compare_logs(pair, kind, topic)
    pair.check()


def test_every_version_and_acks(pair: Pair) -> None:
    pair.create("produce-acks", partitions=2)
    sets = {version: build(records(2, random.Random(1)), min(version, 2)) for version in range(3)}
    for version in range(12):
        data = sets[min(version, 2)]
        for acks in (1, -1, 0, 2, -2, 32767):
            pair.ask(f"acks {acks}", produce("produce-acks", data, acks=acks), version)
        for acks in (0, 1):
            pair.ask(f"unknown topic, acks {acks}", produce("nowhere", data, acks=acks), version)
            pair.ask(f"unknown partition, acks {acks}", produce("produce-acks", data, acks=acks, partition=2), version)
        pair.ask("negative partition", produce("produce-acks", data, partition=-1), version)
        pair.ask("no topics", ProduceRequest(acks=-1), version)
        pair.ask("no partitions", ProduceRequest(acks=-1, topic_data=[TopicProduceData("produce-acks")]), version)
        several = [PartitionProduceData(i, data) for i in (0, 5, 1)]
        pair.ask(
            "several", ProduceRequest(acks=-1, topic_data=[TopicProduceData("produce-acks", partition_data=several)]), version
        )
        if version >= 3:
            pair.ask("transactional id", produce("produce-acks", data, transactional_id="t"), version)
    pair.ask("null records", produce("produce-acks", None), 7)
    for version in (3, 6, 7):
        pair.ask("zstd", produce("produce-acks", build(records(2, random.Random(1)), 2, Codec.ZSTD)), version)
    for partition in (0, 1):
        pair.ask("acks: the log", fetch("produce-acks", partition=partition), 11)
    pair.check()


@pytest.mark.parametrize("seed", range(4))
def test_sequences(pair: Pair, seed: int) -> None:
    """Idempotent producers in any state: duplicates, gaps, epochs that grow and fall, sequences that wrap."""
    rng = random.Random(seed)
    topic = f"sequences-{seed}"
    pair.create(topic)
    following: dict[int, tuple[int, int]] = {}
    for step in range(150):
        producer_id = rng.choice((1000, 1001))
        epoch, sequence = following.get(producer_id, (0, rng.choice((0, 0, 2_147_483_645))))
        choice = rng.random()
        count = rng.choice((1, 2, 3))
        if choice < 0.15:
            sequence -= rng.choice((1, 2, 3, 6))
        elif choice < 0.25:
            sequence += rng.choice((1, 5))
        elif choice < 0.35:
            epoch += rng.choice((-1, 1, 2))
            sequence = rng.choice((0, 0, sequence))
        sequence = sequence % (1 << 31)
        epoch = max(epoch, 0)
        data = build(records(count, rng), 2, producer=Producer(producer_id, epoch, sequence))
        if rng.random() < 0.1:
            data += build(records(1, rng), 2, producer=Producer(producer_id, epoch, (sequence + count) % (1 << 31)))
        answer = pair.ask(f"step {step}: {producer_id} {epoch} {sequence} +{count}", produce(topic, data), rng.choice((3, 7, 9)))
        if answer["responses"][0]["partition_responses"][0]["error_code"] == 0:
            following[producer_id] = (epoch, (sequence + count) % (1 << 31))
    compare_logs(pair, f"sequences {seed}", topic)
    pair.check()


def test_times_out_of_bounds(pair: Pair) -> None:
    """Records of now, of long ago, of the far future: one by one and mixed."""
    import time

    now = time.time_ns() // 1_000_000
    pair.create("times", message_timestamp_before_max_ms=3_600_000, message_timestamp_after_max_ms=3_600_000)
    pair.create("times-append", message_timestamp_before_max_ms=3_600_000, message_timestamp_type="LogAppendTime")
    rng = random.Random(7)
    for topic in ("times", "times-append"):
        for version in (2, 3, 8):
            for codec in (Codec.NONE, Codec.GZIP):
                for picks in ((now,), (T,), (now + 7_200_000,), (now, T, -1), (-1,), (T, now + 7_200_000)):
                    made = [one._replace(timestamp=at) for one, at in zip(records(len(picks), rng), picks, strict=True)]
                    data = build(made, 1 if version == 2 else 2, codec)
                    pair.ask(f"{topic} {codec.name} {len(picks)} from {picks[0] - now}", produce(topic, data), version)
        compare_logs(pair, topic, topic)
    pair.check()
