"""Property: what groups have committed is what a dict says, in memory and as a broker finds it that starts from the log.

Commits, transactions that end in any order, deletions of offsets, groups and topics, expiry, compaction, starts, in any order.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.broker import topics_now
from tests.broker.works import done
from tests.examples import IS_SOAK, examples
from tests.groups.histories import known
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.groups.offset_commits import Committer, Transaction, commit, commit_in_transaction
from tidelog.broker.node import Node
from tidelog.broker.requests import slices
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import ManualClock
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.sources.files.folder_groups import FolderGroups
from tidelog.storage.log_manager import LogManager
from tidelog.storage.steps import run_steps
from tidelog.wire.error_codes import ErrorCode

NOW_MS = 1_373_450_400_000
HOUR_MS = 3_600_000
RETENTION_MS = 3 * HOUR_MS

group_ids = st.sampled_from(["a", "b", "c"])
topics = st.sampled_from(["events", "other"])
keys = st.builds(TopicPartition, topics, st.integers(0, 1))
producers = st.sampled_from([7, 8])
offsets = st.dictionaries(keys, st.integers(0, 999), min_size=1, max_size=3)


class Forgotten:
    """A call that is never made: time passes by hand."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Forgotten:
        return self

    def cancel(self) -> None:
        pass


class AtOnce:
    """`timers.Blocking` without threads."""

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        try:
            result = work()
        except BaseException as error:
            result = error
        done(result)


class Written(NamedTuple):
    """What stands in the log: an offset, where, and when it was committed."""

    offset: int
    number: int
    time_ms: int


Place = tuple[str, TopicPartition]


class Offsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock(NOW_MS)
        self.manager = LogManager(self.folder, self.clock, properties={"log.cleaner.dedupe.buffer.size": 1 << 20})
        self.manager.startup()
        self.number = 0
        self.committed: dict[Place, Written] = {}
        self.pending: dict[int, dict[Place, Written]] = {7: {}, 8: {}}

    def teardown(self) -> None:
        self.manager.shutdown()
        shutil.rmtree(self.folder)

    def begin(self) -> Node:
        """A node that knows what the log says."""
        config = BrokerConfig.from_properties(
            {
                "offsets.topic.num.partitions": 2,
                "offsets.topic.segment.bytes": 700,
                "offsets.retention.minutes": RETENTION_MS // 60_000,
            }
        )
        node = Node(self.manager, config, self.clock, Forgotten(), AtOnce())  # type: ignore[arg-type]
        node.transactions.verify = lambda *asked: ErrorCode.NONE  # type: ignore[method-assign]
        node.groups.start()
        return node

    @initialize()
    def start(self) -> None:
        self.node = self.begin()
        for topic in ("events", "other"):
            topics_now.create(self.node, topic, 2, {})
        assert run_steps(self.node.groups.log.making(), self.node.manager.metadata) is ErrorCode.NONE
        topics_now.configure(
            self.node,
            OFFSETS_TOPIC,
            {**self.node.topics.properties(OFFSETS_TOPIC), "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"},
        )

    @rule()
    def start_again(self) -> None:
        self.node = self.begin()

    @rule(group_id=group_ids, offsets=offsets)
    def commit(self, group_id: str, offsets: dict[TopicPartition, int]) -> None:
        codes = done(commit(self.node, Committer(group_id, -1, "", None), self.made(offsets)))
        assert set(codes.values()) == {ErrorCode.NONE}
        self.number += 1
        for key, offset in offsets.items():
            self.committed[group_id, key] = Written(offset, self.number, self.clock.now_ms())

    @rule(group_id=group_ids, offsets=offsets, producer_id=producers)
    def commit_in_transaction(self, group_id: str, offsets: dict[TopicPartition, int], producer_id: int) -> None:
        transaction = Transaction("id", producer_id, 0)
        codes = done(commit_in_transaction(self.node, Committer(group_id, -1, "", None), transaction, self.made(offsets)))
        assert set(codes.values()) == {ErrorCode.NONE}
        self.number += 1
        for key, offset in offsets.items():
            self.pending[producer_id][group_id, key] = Written(offset, self.number, self.clock.now_ms())

    def made(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
        return {key: CommittedOffset(offset, -1, "", self.clock.now_ms()) for key, offset in offsets.items()}

    @rule(producer_id=producers, is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        groups = self.node.groups
        producer = Producer(producer_id, 0, -1)
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        for partition in range(2):
            groups.log.append_batch(partition, build_end_txn_marker(0, self.clock.now_ms(), kind, producer))
            groups.complete_transaction(partition, producer_id, is_commit)
        pending, self.pending[producer_id] = self.pending[producer_id], {}
        for place, written in pending.items():
            before = self.committed.get(place)
            if is_commit and (before is None or before.number < written.number):
                self.committed[place] = written

    @rule(group_id=group_ids, keys=st.lists(keys, max_size=3))
    def delete_offsets(self, group_id: str, keys: list[TopicPartition]) -> None:
        group = self.node.groups.get(group_id)
        if group is not None:
            assert done(self.node.groups.remove_offsets(group, keys)) is ErrorCode.NONE
            self.forget(lambda place: place[0] == group_id and place[1] in keys)

    @rule(group_id=group_ids)
    def delete_group(self, group_id: str) -> None:
        group = self.node.groups.get(group_id)
        if group is not None:
            assert done(self.node.groups.remove(group)) is ErrorCode.NONE
            self.forget(lambda place: place[0] == group_id)

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        topics_now.delete(self.node, topic)
        topics_now.create(self.node, topic, 2, {})
        self.forget(lambda place: place[1].topic == topic)

    def forget(self, is_going: Callable[[Place], bool]) -> None:
        for table in (self.committed, *self.pending.values()):
            for place in [place for place in table if is_going(place)]:
                del table[place]

    @rule()
    def expire(self) -> None:
        self.clock.advance(HOUR_MS)
        now_ms = self.clock.now_ms()
        unstable = {place for pending in self.pending.values() for place in pending}
        old = {place for place, written in self.committed.items() if now_ms - written.time_ms >= RETENTION_MS}
        expired = old - unstable
        self.node.groups.expire()
        self.forget(expired.__contains__)

    @rule()
    def compact(self) -> None:
        for key, log in list(self.manager.logs.items()):
            if key.topic == OFFSETS_TOPIC and log.log_end_offset:
                log.roll()
        cleaner = self.manager.cleaner
        assert cleaner is not None
        while cleaner.clean_filthiest_log():
            pass

    @invariant()
    def is_what_the_model_says(self) -> None:
        if not hasattr(self, "node"):
            return
        expected = {place: written.offset for place, written in self.committed.items()}
        unstable = {place for pending in self.pending.values() for place in pending}
        for node in (self.node, self.begin()):
            groups = node.groups.all()
            assert {(one.group_id, key): is_.offset for one in groups for key, is_ in one.offsets.all()} == expected
            assert {
                (one.group_id, key) for one in groups for key in one.offsets.partitions() if one.offsets.is_pending(key)
            } == unstable
        # What a folder's reader says is the same.
        stored = FolderGroups(str(self.folder)).stored()
        assert known(stored)[:2] == (expected, unstable)
        # A group that is empty may be there still; after a start it is not.
        assert {one.group_id for one in groups} == {group_id for group_id, _ in (*expected, *unstable)}


def test_offsets_are_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", PATIENCE_S)  # What has expired goes at once, on any machine.
    run_state_machine_as_test(Offsets, settings=examples(60 if IS_SOAK else 36, stateful_step_count=30))
