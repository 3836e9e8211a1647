"""A leader that answers nonsense for a while: nothing committed goes, and it is followed again once it answers well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.replicas.simulated_leader import LEADER, SimulatedLeader, Simulation, equal_logs, until
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch, offsets
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import EpochEndOffset, PartitionData

KEY = TopicPartition("orders", 0)
TIMES = 3


def parted(epoch: int, end: int) -> Callable[[PartitionData], PartitionData]:
    return lambda data: PartitionData(0, high_watermark=0, records=b"", diverging_epoch=EpochEndOffset(epoch, end))


def marks(high_watermark: int, log_start: int) -> Callable[[PartitionData], PartitionData]:
    return lambda data: PartitionData(0, high_watermark=high_watermark, log_start_offset=log_start, records=data.records)


def sent(records: Callable[[bytes], bytes]) -> Callable[[PartitionData], PartitionData]:
    return lambda data: PartitionData(0, high_watermark=0, records=records(bytes(data.records)))


FETCHED = {
    "an end of an epoch below zero": parted(0, -5),
    "an epoch's end that nobody knows": parted(0, -1),
    "an end of an epoch beyond all": parted(2**31 - 1, 2**63 - 1),
    "a high watermark below zero": marks(-(2**63), 0),
    "a log start below zero": marks(0, -(2**63)),
    "a high watermark beyond all": marks(2**63 - 1, -1),
    "no batch": sent(lambda records: b"\xff" * 80),
    "a batch without an end": sent(lambda records: records[:8] + (2**31 - 1).to_bytes(4, "big") + records[12:]),
    "a batch of no size": sent(lambda records: records[:8] + bytes(4) + records[12:]),
    "a batch from later on": sent(lambda records: (10**9).to_bytes(8, "big") + records[8:]),
    "a batch from before zero": sent(lambda records: b"\xff" * 8 + records[8:]),
    "a part of a header": sent(lambda records: records[:7]),
}
ENDS = [(-1, -1), (5, 2), (-3, 4), (0, -(2**63))]


def lies(leader: SimulatedLeader, name: str, answer: Callable[..., Any], times: int = TIMES) -> None:
    """Have `answer` called in place of a method for its first `times` calls."""
    left, honest = [None] * times, getattr(leader, name)

    def lying(*arguments: Any) -> Any:
        return answer(honest, *arguments) if left and left.pop() is None else honest(*arguments)

    setattr(leader, name, lying)


def followed(tmp_path: Path, version: int, prepare: Callable[[SimulatedLeader], None]) -> None:
    """Follow a leader; records 0 to 3 are committed, and in both logs."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = equal_logs(tmp_path, (0, 0), committed=4)
        leader.lead(KEY, first, 1)
        first.append_as_leader(batch(count=2), 1)
        prepare(leader)
        async with Simulation(leader, fetch_version=version) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])

            def has_all() -> bool:
                there = offsets(second)
                assert (second.log_start_offset, there[:4]) == (0, [0, 1, 2, 3])
                assert not simulation.failed
                return there == [0, 1, 2, 3, 4, 5]  # After a truncation to 6 the log may end there without records 4 and 5.

            await until(has_all)
        assert first.read(0, 1 << 20).data == second.read(0, 1 << 20).data
        for log in (first, second):
            log.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


@pytest.mark.parametrize("nonsense", FETCHED)
def test_answers_to_fetches(tmp_path: Path, nonsense: str) -> None:
    def answer(honest: Callable[..., PartitionData], *arguments: Any) -> PartitionData:
        return FETCHED[nonsense](honest(*arguments))

    followed(tmp_path, 17, lambda leader: lies(leader, "_read_one", answer))


@pytest.mark.parametrize("end", [-2, -(2**63)])
def test_ends_of_epochs(tmp_path: Path, end: int) -> None:
    def answer(honest: Callable[..., Any], request: Any) -> Any:
        response = honest(request)
        response.topics[0].partitions[0].end_offset = end
        return response

    followed(tmp_path, 11, lambda leader: lies(leader, "_epoch_ends", answer))


@pytest.mark.parametrize(("start", "end"), ENDS)
def test_ends_of_logs(tmp_path: Path, start: int, end: int) -> None:
    def answer(honest: Callable[..., Any], request: Any) -> Any:
        response = honest(request)
        one = request.topics[0].partitions[0]
        response.topics[0].partitions[0].offset = end if one.timestamp == -1 else start
        return response

    def prepare(leader: SimulatedLeader) -> None:
        leader.led[KEY].errors.append(ErrorCode.OFFSET_OUT_OF_RANGE)
        # Start and end are asked for together. Half a lie may be believed, and then committed records go for a moment.
        lies(leader, "_list_offsets", answer, 2 * TIMES)

    followed(tmp_path, 17, prepare)


def test_a_batch_larger_than_a_fetch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Leaders before protocol 0.10.1 send a part of it, for as long as replica.fetch.max.bytes stays as it is."""

    def answer(honest: Callable[..., PartitionData], *arguments: Any) -> PartitionData:
        return sent(lambda records: records[:-7])(honest(*arguments))

    followed(tmp_path, 2, lambda leader: lies(leader, "_read_one", answer))
    said = [record.getMessage() for record in caplog.records]
    assert sum("replica.fetch.max.bytes" in line for line in said) == 1, said
