"""Coordinators under random elections and deaths: what was acknowledged is there, and what was shown never goes back."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.broker.cluster.test_coordinators import KEY, Transactional, cluster_of, commit, fetched, kept_in, run
from tests.broker.replicas.small_cluster import SmallCluster
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.state_log import read_batches
from tidelog.errors import BrokerUnreachableError
from tidelog.model import TopicPartition
from tidelog.records.control import ControlType
from tidelog.wire.error_codes import ErrorCode

T = TypeVar("T")

SEEDS = range(40 if os.environ.get("TIDELOG_SOAK") else 2)
ROUNDS = 12


async def disturb(cluster: SmallCluster, key: TopicPartition, rng: random.Random) -> None:
    """Elect another leader, kill the one there is, or start one that is dead."""
    dead = sorted({1, 2, 3} - cluster.members.keys())
    if dead and rng.random() < 0.6:
        await cluster.start(dead[0])
        return
    record = cluster.record(key)
    choice = rng.random()
    if choice < 0.5:
        living = [one for one in record.isr if one in cluster.members and one != record.leader]
        if living:
            cluster.controller.elect(key, rng.choice(living))
    elif not dead and len(record.isr) > 1:
        await cluster.kill(record.leader)


async def leader_of(cluster: SmallCluster, key: TopicPartition) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while cluster.record(key).leader not in cluster.members:
            await asyncio.sleep(0.005)
    return cluster.record(key).leader


@pytest.mark.parametrize("seed", SEEDS)
def test_committed_offsets(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    async def work() -> None:
        async with cluster_of(tmp_path, replica_lag_time_max_ms=500, offsets_commit_timeout_ms=1000) as cluster:
            await cluster.create_topic("orders", [1, 2, 3])
            await cluster.create_topic("__consumer_offsets", [1, 2, 3], min_insync_replicas="2")
            key = kept_in(cluster, "g")
            acknowledged = shown = -1
            sent = 0
            is_over = False

            async def write() -> None:
                nonlocal acknowledged, sent
                while not is_over:
                    sent += 1
                    offset = sent
                    try:
                        code = await commit(cluster, await leader_of(cluster, key), "g", offset)
                    except (BrokerUnreachableError, KeyError):
                        continue
                    if code == ErrorCode.NONE:
                        acknowledged = max(acknowledged, offset)
                    await asyncio.sleep(0)

            async def read() -> None:
                nonlocal shown
                while not is_over:
                    before = acknowledged, shown
                    try:
                        code, offset = await fetched(cluster, await leader_of(cluster, key), "g")
                    except (BrokerUnreachableError, KeyError):
                        continue
                    if code == ErrorCode.NONE:
                        assert offset >= max(before), f"seed {seed}: {offset}, and {before} were acknowledged and shown"
                        shown = max(shown, offset)
                    await asyncio.sleep(0.002)

            tasks = [asyncio.create_task(write()), asyncio.create_task(read())]
            for _ in range(ROUNDS):
                await disturb(cluster, key, rng)
                before = acknowledged
                async with asyncio.timeout(PATIENCE_S):
                    while acknowledged == before and not any(task.done() for task in tasks):
                        await asyncio.sleep(0.005)
            is_over = True
            await asyncio.gather(*tasks)
            assert acknowledged > 0 and 0 < shown <= sent

    run(work())


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions(tmp_path: Path, seed: int) -> None:
    """Of each transaction all partitions have the record once, committed, or nobody is shown it."""
    rng = random.Random(seed)

    async def work() -> None:
        async with cluster_of(tmp_path, replica_lag_time_max_ms=500) as cluster:
            await cluster.create_topic("__transaction_state", [1, 2, 3])
            await cluster.create_topic("orders", [2, 3, 1], [3, 1, 2])
            keys = [KEY, TopicPartition("orders", 1)]
            producer = Transactional(cluster, "t")
            coordinated = kept_in(cluster, "t", 1)
            committed: list[bytes] = []
            maybe: list[bytes] = []
            for number in range(ROUNDS):
                value = b"%d" % number
                await insisting(producer.begin)
                disturbing = asyncio.create_task(disturb(cluster, rng.choice([coordinated, *keys]), rng))
                is_commit = rng.random() < 0.7
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await produce_all(producer, keys, value)
                        code = await insisting(lambda is_commit=is_commit: producer.end(is_commit=is_commit))
                except _LostError:
                    code = None  # The next producer of the id aborts it.
                if is_commit and code == 0:
                    committed.append(value)
                elif is_commit and code is not None:
                    maybe.append(value)
                await disturbing
            for node_id in sorted({1, 2, 3} - cluster.members.keys()):
                await cluster.start(node_id)
            await insisting(producer.begin)
            for key in keys:
                await cluster.until(lambda key=key: is_settled(cluster, key))  # type: ignore[misc]
                seen = [value for value in shown(cluster, key) if value not in maybe]
                assert seen == committed, f"seed {seed}, {key}"

    run(work())


class _LostError(Exception):
    """A record's answer is not known."""


async def produce_all(producer: Transactional, keys: list[TopicPartition], value: bytes) -> None:
    codes = await insisting(lambda: producer.add(*keys))
    if codes != {0}:
        raise _LostError
    for key in keys:
        producer.sequence = 0
        while True:
            try:
                answer = await producer.send(key, value, node_id=await leader_of(producer.cluster, key))
            except (BrokerUnreachableError, KeyError):
                continue  # The batch's sequence says whether it is there already.
            if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                break
            if answer.error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH):
                raise _LostError
            await asyncio.sleep(0.01)


async def insisting(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step of a transaction until a broker answers it."""
    while True:
        try:
            return await step()
        except (BrokerUnreachableError, KeyError):
            await asyncio.sleep(0.01)


def is_settled(cluster: SmallCluster, key: TopicPartition) -> bool:
    leader = cluster.record(key).leader
    if leader not in cluster.members or not cluster.leads(leader, key):
        return False
    log = cluster.members[leader].log(key)
    return log.last_stable_offset == log.log_end_offset


def shown(cluster: SmallCluster, key: TopicPartition) -> list[bytes]:
    """The values that read_committed shows."""

    log = cluster.leader(key).log(key)
    found = []
    open_values: dict[int, list[bytes]] = {}
    for batch in read_batches(log, log.log_start_offset, log.log_end_offset):
        if batch.marker is None:
            open_values.setdefault(batch.producer_id, []).extend(one.value or b"" for one in batch.records)
        else:
            values = open_values.pop(batch.producer_id, [])
            if batch.marker is ControlType.COMMIT:
                found += values
    return found
