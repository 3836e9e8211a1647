"""The rules for producers against a model that remembers every event of the log and answers by looking through all of them."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.examples import examples
from tests.storage.producers import DAY_MS, NOW_MS, batch, manager
from tidelog.clock import ManualClock
from tidelog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerError,
    TransactionCoordinatorFencedError,
)
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.records.validation import AppendOrigin
from tidelog.storage.producers.producer_state_manager import ProducerStateManager

MODULUS = 2**31
PRODUCERS = st.integers(1, 3)
EPOCHS = st.integers(0, 2)


class Event(NamedTuple):
    """Something that lies in the log: a batch, or a marker (`sequence` -1)."""

    header: BatchHeader
    marker: EndTxnMarker | None = None


class Producers(RuleBasedStateMachine):
    """`log` is the truth; `remembered` says, by producer, from which offset on the manager still knows its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = ManualClock(NOW_MS)
        self.state: ProducerStateManager = manager(self.directory, self.clock)
        self.log: list[Event] = []
        self.forgotten_before: dict[int, int] = {}
        self.single_before = 0
        self.snapshots: dict[int, dict[int, int]] = {}
        self.high_watermark = 0

    @initialize(sequence=st.sampled_from([0, 5, MODULUS - 3]), epoch=EPOCHS)
    def begin_near_the_end_of_sequences(self, sequence: int, epoch: int) -> None:
        self.append(batch(sequence, 0, epoch=epoch, timestamp=self.clock.now_ms()), AppendOrigin.REPLICATION)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    # The model.

    @property
    def end(self) -> int:
        return self.log[-1].header.next_offset if self.log else 0

    def events(self, producer_id: int) -> list[Event]:
        since = self.forgotten_before.get(producer_id, 0)
        return [event for event in self.log if event.header.producer_id == producer_id and event.header.base_offset >= since]

    def epoch(self, producer_id: int) -> int:
        events = self.events(producer_id)
        return events[-1].header.producer_epoch if events else -1

    def batches(self, producer_id: int) -> list[BatchHeader]:
        """The batches of the current epoch: at most five, of those below the last reload at most one."""
        found: list[BatchHeader] = []
        epoch = -1
        for header, marker in self.events(producer_id):
            if header.producer_epoch != epoch:
                found, epoch = [], header.producer_epoch
            if marker is None:
                found.append(header)
        old = [header for header in found if header.base_offset < self.single_before]
        return [*old[-1:], *found[len(old) :]][-5:]

    def open_txn(self, producer_id: int) -> int | None:
        first = None
        for header, marker in self.events(producer_id):
            if marker is not None:
                first = None
            elif header.is_transactional and first is None:
                first = header.base_offset
        return first

    def coordinator_epoch(self, producer_id: int) -> int:
        return next((event.marker.coordinator_epoch for event in self.events(producer_id)[::-1] if event.marker), -1)

    def transactions(self) -> list[tuple[int, int, int]]:
        """All transactions: producer, first offset, offset of the marker or -1. They outlive a producer that is forgotten."""
        found = []
        for producer_id in {event.header.producer_id for event in self.log}:
            first = None
            for header, marker in [event for event in self.log if event.header.producer_id == producer_id]:
                if marker is not None and first is not None:
                    found.append((producer_id, first, header.base_offset))
                    first = None
                elif marker is None and header.is_transactional and first is None:
                    first = header.base_offset
            if first is not None:
                found.append((producer_id, first, -1))
        return found

    def expected_error(self, header: BatchHeader) -> type[ProducerError] | None:
        producer_id, epoch = header.producer_id, self.epoch(header.producer_id)
        if header.producer_epoch < epoch:
            return InvalidProducerEpochError
        if epoch >= 0:
            batches = self.batches(producer_id) if header.producer_epoch == epoch else []
            following = (batches[-1].last_sequence + 1) % MODULUS if batches else 0
            if header.base_sequence != following:
                return OutOfOrderSequenceError
        if self.open_txn(producer_id) is not None and not header.is_transactional:
            return InvalidTxnStateError
        return None

    # What happens to the log.

    def append(self, header: BatchHeader, origin: AppendOrigin) -> None:
        info = self.state.prepare_update(header.producer_id, origin)
        info.append(header)
        self.state.update(info)
        self.state.map_end_offset = header.next_offset
        self.log.append(Event(header))

    @rule(
        producer_id=PRODUCERS,
        epoch=EPOCHS,
        after=st.sampled_from([0, 0, 0, 0, 1, -1, -2]),
        records=st.integers(1, 3),
        transactional=st.booleans(),
        current_epoch=st.booleans(),
        same_kind=st.booleans(),
    )
    def client_batch(
        self,
        producer_id: int,
        epoch: int,
        after: int,
        records: int,
        transactional: bool,
        current_epoch: bool,
        same_kind: bool,
    ) -> None:
        if current_epoch:
            epoch = max(self.epoch(producer_id), 0)
        if same_kind and self.open_txn(producer_id) is not None:
            transactional = True
        batches = self.batches(producer_id)
        following = batches[-1].last_sequence + 1 if batches and self.epoch(producer_id) == epoch else 0
        header = batch(
            (following + after) % MODULUS,
            self.end,
            records=records,
            producer_id=producer_id,
            epoch=epoch,
            timestamp=self.clock.now_ms(),
            transactional=transactional,
        )
        self.client_append(header)

    @rule(producer_id=PRODUCERS, back=st.integers(0, 6))
    def client_repeats(self, producer_id: int, back: int) -> None:
        sent = [event.header for event in self.log if event.marker is None and event.header.producer_id == producer_id]
        if back < len(sent):
            old = sent[-1 - back]
            self.client_append(old._replace(base_offset=self.end, last_offset=self.end + old.last_offset - old.base_offset))

    def client_append(self, header: BatchHeader) -> None:
        sequences = (header.producer_epoch, header.base_sequence, header.last_sequence)
        known = self.batches(header.producer_id)
        same = [old for old in known if (old.producer_epoch, old.base_sequence, old.last_sequence) == sequences]
        duplicate = self.state.duplicate_of(header)
        if same:
            assert duplicate is not None
            assert (duplicate.first_offset, duplicate.last_offset) == (same[0].base_offset, same[0].last_offset)
            return
        assert duplicate is None
        expected = self.expected_error(header)
        try:
            self.append(header, AppendOrigin.CLIENT)
        except ProducerError as error:
            assert type(error) is expected, (error, expected)
        else:
            assert expected is None

    @rule(
        producer_id=PRODUCERS,
        kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
        bump=st.sampled_from([0, 0, 0, 1, -1]),
        coordinator_epoch=st.sampled_from([2, 2, 2, 3, 1]),
    )
    def marker(self, producer_id: int, kind: ControlType, bump: int, coordinator_epoch: int) -> None:
        epoch = max(self.epoch(producer_id) + bump, 0)
        marker = EndTxnMarker(kind, coordinator_epoch)
        header = batch(
            -1,
            self.end,
            producer_id=producer_id,
            epoch=epoch,
            timestamp=self.clock.now_ms(),
            transactional=True,
            control=True,
        )
        expected: type[ProducerError] | None = None
        if epoch < self.epoch(producer_id):
            expected = InvalidProducerEpochError
        elif coordinator_epoch < self.coordinator_epoch(producer_id):
            expected = TransactionCoordinatorFencedError
        first = self.open_txn(producer_id)
        others = [begun for pid, begun, end in self.transactions() if end < 0 and pid != producer_id]
        info = self.state.prepare_update(producer_id, AppendOrigin.COORDINATOR)
        try:
            completed = info.append(header, None, marker)
        except ProducerError as error:
            assert type(error) is expected
            return
        assert expected is None
        self.state.update(info)
        if first is None:
            assert completed is None
        else:
            assert completed == (producer_id, first, self.end, kind is ControlType.ABORT)
            assert self.state.last_stable_offset(completed) == min([*others, self.end + 1])
            self.state.complete_txn(completed)
        self.state.map_end_offset = header.next_offset
        self.log.append(Event(header, marker))

    @rule(part=st.floats(0, 1))
    def high_watermark_moves(self, part: float) -> None:
        self.high_watermark = max(self.high_watermark, int(part * self.end))
        self.state.on_high_watermark_updated(self.high_watermark)

    # What happens to the process and its files.

    @rule()
    def snapshot(self) -> None:
        path = self.state.take_snapshot()
        assert (path is None) == (max(self.snapshots, default=0) >= self.end)
        if path is not None:
            self.snapshots[self.end] = dict(self.forgotten_before)

    @precondition(lambda self: self.log)
    @rule(cut=st.sampled_from([0, 0, 1, 3]))
    def restart_or_truncate(self, cut: int) -> None:
        """Reload from the last snapshot in range and replay what the log has after it."""
        self.log = self.log[: max(len(self.log) - cut, 1)]
        end = self.end
        self.state = manager(self.directory, self.clock)
        self.state.truncate_and_reload(0, end, self.clock.now_ms())
        start = self.state.map_end_offset
        self.snapshots = {offset: known for offset, known in self.snapshots.items() if offset <= end}
        assert start == max(self.snapshots, default=0)
        self.forgotten_before = self.snapshots.get(start, {})
        self.single_before = start
        self.expire_in_model(end=start)
        for header, marker in self.log:
            if header.base_offset >= start:
                self.state.replay(header, marker)
        # As at a start of Kafka's, where the high watermark begins at the checkpoint or the log's start.
        self.high_watermark = start
        self.state.on_high_watermark_updated(start)

    @rule(milliseconds=st.sampled_from([1, DAY_MS // 3, DAY_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        deque(self.state.remove_expired_producers(self.clock.now_ms()), maxlen=0)
        self.expire_in_model(self.end)

    def expire_in_model(self, end: int) -> None:
        """Forget the producers whose last word below `end` is a day old, unless they have a transaction open there."""
        whole = self.log
        self.log = [event for event in whole if event.header.base_offset < end]
        for producer_id in (1, 2, 3):
            events = self.events(producer_id)
            is_old = bool(events) and self.clock.now_ms() - events[-1].header.max_timestamp >= DAY_MS
            if is_old and self.open_txn(producer_id) is None:
                self.forgotten_before = {**self.forgotten_before, producer_id: end}
        self.log = whole

    # What must hold.

    @invariant()
    def the_same_producers(self) -> None:
        assert self.state.map_end_offset == self.end
        known = {producer_id for producer_id in (1, 2, 3) if self.events(producer_id)}
        assert set(self.state.active_producers) == known
        for producer_id, entry in self.state.active_producers.items():
            batches = self.batches(producer_id)
            assert [(one.first_sequence, one.last_sequence, one.last_offset) for one in entry.batches] == [
                (one.base_sequence, one.last_sequence, one.last_offset) for one in batches
            ]
            assert entry.producer_epoch == self.epoch(producer_id)
            assert entry.coordinator_epoch == self.coordinator_epoch(producer_id)
            assert entry.last_timestamp == self.events(producer_id)[-1].header.max_timestamp
            assert max(entry.current_txn_first_offset, -1) == (-1 if (first := self.open_txn(producer_id)) is None else first)

    @invariant()
    def the_same_unstable_offsets(self) -> None:
        transactions = self.transactions()
        undecided = [first for _, first, end in transactions if end < 0]
        assert self.state.first_undecided_offset == min(undecided, default=None)
        unstable = [first for _, first, end in transactions if end < 0 or end >= self.high_watermark]
        found = self.state.first_unstable_offset
        assert (None if found is None else found.message_offset) == min(unstable, default=None)


Producers.TestCase.settings = examples(60, stateful_step_count=40)
test_producers_follow_the_model = Producers.TestCase
