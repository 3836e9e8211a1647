"""A follower whose `leader-epoch-checkpoint` was lost, or is another log's: its log says what is true."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.replicas.simulated_leader import LEADER, SimulatedLeader, Simulation, equal_logs, until
from tests.examples import examples
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch, headers, offsets, open_log, records
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.names import LEADER_EPOCH_CHECKPOINT
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog

KEY = TopicPartition("orders", 0)
EPOCHS = (0, 0, 3, 3)
FORGED = {
    "none": None,
    "empty": "",
    "no entries": "0\n0\n",
    "a newer epoch from the start": "0\n1\n9 0\n",
    "a newer last epoch": "0\n2\n0 0\n7 4\n",
    "the first epoch only": "0\n1\n0 0\n",
    "an epoch beyond the end": "0\n2\n0 0\n3 900\n",
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("version", [11, 17])
@pytest.mark.parametrize("forged", FORGED)
def test_what_is_committed_stays_and_the_leader_is_followed(tmp_path: Path, forged: str, version: int, is_clean: bool) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = equal_logs(tmp_path, EPOCHS, committed=8)
        second.close()
        path = second.directory / LEADER_EPOCH_CHECKPOINT
        text = FORGED[forged]
        path.unlink() if text is None else path.write_text(text)
        second = open_log(tmp_path / "second", topic_id=None, clean=is_clean, recovery_point=8 if is_clean else 0)
        second.update_high_watermark(8)
        assert [(entry.epoch, entry.start_offset) for entry in second.leader_epochs.entries] == [(0, 0), (3, 4)]
        leader.lead(KEY, first, 5)
        first.append_as_leader(batch(count=2), 5)
        async with Simulation(leader, fetch_version=version) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])

            def has_all() -> bool:
                assert second.log_end_offset >= 8, "what is committed stays"
                return second.log_end_offset == 10

            await until(has_all)
        assert offsets(second) == list(range(10))
        assert second.leader_epochs.entries == first.leader_epochs.entries
        first.close()
        second.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


LONG_MS = 600_000


@pytest.mark.parametrize("backoff_ms", [5, LONG_MS])
def test_a_leader_with_forged_epochs(tmp_path: Path, backoff_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """It has sent what it says is not its: Kafka would truncate and fetch the same records again and again, without a pause."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = equal_logs(tmp_path, EPOCHS, committed=8)
        leader.lead(KEY, first, 5)
        first.leader_epochs.replace_all([EpochEntry(0, 0), EpochEntry(3, 4), EpochEntry(5, 6)])
        async with Simulation(leader, replica_fetch_backoff_ms=backoff_ms) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: "asking again" in caplog.text)
            assert offsets(second) == list(range(8)), "it waits with all records"
            if backoff_ms == LONG_MS:
                for _ in range(100):
                    await asyncio.sleep(0)
            else:
                await until(lambda: caplog.text.count("truncated to 6") > 1 and second.log_end_offset == 8)
                first.leader_epochs.replace_all([EpochEntry(0, 0), EpochEntry(3, 4), EpochEntry(5, 8)])
                first.append_as_leader(batch(count=2), 5)
                await until(lambda: second.log_end_offset == 10)
                assert offsets(second) == list(range(10))
                assert second.leader_epochs.entries == first.leader_epochs.entries
        said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        folder = second.directory
        cut = f"{folder}: truncated to 6, below its high watermark 8: the leader's epoch 3 ends at 6"
        again = f"{folder}: broker 1 reports that its epoch 3 ends at 6, but it has sent records up to 7: asking again"
        assert said[:2] == [cut, again]
        assert backoff_ms < LONG_MS or len(said) == 2
        first.close()
        second.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


@pytest.mark.parametrize("version", [11, 17])
@pytest.mark.parametrize("committed", [4, 6, 8])
def test_an_epoch_that_no_leader_had_yet(tmp_path: Path, committed: int, version: int, caplog: pytest.LogCaptureFixture) -> None:
    """Where the batches do not tell, as messages of v1 do not."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = equal_logs(tmp_path, EPOCHS, committed=committed)
        leader.lead(KEY, first, 5)
        first.append_as_leader(batch(count=2), 5)
        second.leader_epochs.replace_all([EpochEntry(0, 0), EpochEntry(3, 3), EpochEntry(9, 4)])
        async with Simulation(leader, fetch_version=version) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])

            def has_all() -> bool:
                assert second.log_end_offset >= committed, "what is committed stays"
                return second.log_end_offset == 10

            await until(has_all)
        assert offsets(second) == list(range(10))
        assert second.leader_epochs.latest == EpochEntry(5, 8)
        said = f"{second.directory}: the log has leader epoch 9, but the leader's epoch is 5: removing the newer epochs"
        assert version == 11 or said in caplog.text
        first.close()
        second.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


# --- both at random

BATCHES = st.lists(st.tuples(st.integers(-3, 2).map(lambda rise: max(rise, 0)), st.integers(1, 2)), max_size=8)
FORGERIES = st.one_of(
    st.none(),
    st.just("lost"),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 30)), max_size=4),
    st.tuples(st.sampled_from(["drop", "epoch", "offset"]), st.integers(0, 9), st.integers(-3, 3)),
)


def grow(log: PartitionLog, epoch: int, batches: list[tuple[int, int]]) -> int:
    """Append batches to a log, each so many epochs above the one before; return the last one's."""
    for rise, count in batches:
        epoch += rise
        log.append_as_leader(batch(value=b"%d" % epoch, count=count), epoch)
    return epoch


def forge(path: Path, how: Any) -> None:
    if how == "lost":
        path.unlink(missing_ok=True)
    elif isinstance(how, list):
        LeaderEpochs(EpochEntry(*entry) for entry in sorted(how)).write(path)
    elif how is not None:
        what, place, shift = how
        entries = LeaderEpochs.read(path).entries
        if entries:
            epoch, offset = entries[place % len(entries)]
            moved = {"drop": [], "epoch": [(epoch + shift, offset)], "offset": [(epoch, offset + shift)]}[what]
            entries[place % len(entries) : place % len(entries) + 1] = [EpochEntry(max(a, 0), max(b, 0)) for a, b in moved]
        LeaderEpochs(entries).write(path)


@examples(200)
@given(BATCHES, BATCHES, BATCHES, st.integers(0, 10), FORGERIES, FORGERIES, st.sampled_from([11, 17]), st.booleans())
def test_logs_that_part_above_what_is_committed(
    common: list[tuple[int, int]],
    old: list[tuple[int, int]],
    new: list[tuple[int, int]],
    tenths: int,
    leaders: Any,
    followers: Any,
    version: int,
    is_clean: bool,
) -> None:
    """An old leader follows the new one; both were restarted, and the epochs of either may be forged."""

    async def test(folder: Path) -> None:
        leader = SimulatedLeader()
        logs, true, newest = [], [], 0
        for name, tail, how in (("second", old, followers), ("first", new, leaders)):
            (folder / name).mkdir()
            log = open_log(folder / name, topic_id=None, segment_bytes=300)
            newest = grow(log, 0, common)
            committed = next((one.base_offset for one in headers(log)[len(common) * tenths // 10 :]), log.log_end_offset)
            # Each leader has an epoch of its own, and the new one's is above all.
            newest = grow(log, newest + (1 if name == "second" else 40), tail)
            true.append(log.leader_epochs.entries)
            log.close()
            path = log.directory / LEADER_EPOCH_CHECKPOINT
            forge(path, how)
            logs.append(open_log(folder / name, topic_id=None, segment_bytes=300, clean=is_clean))
            logs[-1].update_high_watermark(committed)
        second, first = logs
        are_known = [log.leader_epochs.entries == entries for log, entries in zip(logs, true, strict=True)]
        leader.lead(KEY, first, newest + 1)
        first.append_as_leader(batch(), newest + 1)
        async with Simulation(leader, fetch_version=version) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])

            def has_all() -> bool:
                assert second.log_end_offset >= committed, "what is committed stays"
                return second.leader_epochs.latest_epoch == newest + 1

            await until(has_all)
        if all(are_known):
            assert contents(second) == contents(first)
            assert second.leader_epochs.entries == first.leader_epochs.entries
        for log in logs:
            log.close()

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(asyncio.wait_for(test(Path(name)), PATIENCE_S))


def contents(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records(log)]
