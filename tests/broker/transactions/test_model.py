"""The coordinator and the logs against a plain model: producers that fence each other, time that passes, restarts.

The model knows of a transactional id what KIP-98 and KIP-360 say, and of a log which transaction each of its records is in. All
answers are predicted; in the end, and after each restart, read_committed gives exactly what was committed.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.broker import topics_now
from tests.broker.transactions.producers import TransactionalProducer, committed, find_coordinator, offset_of, wait_until_loaded
from tests.examples import examples
from tidelog import Broker
from tidelog.broker.serving_broker import ServingBroker
from tidelog.clock import ManualClock
from tidelog.model import TRANSACTIONS_TOPIC
from tidelog.wire.error_codes import ErrorCode

T0 = 1_700_000_000_000
TIMEOUT_MS = 60_000
CHECKED_EVERY_MS = 10_000
IDS = ["one", "two"]
ACTORS = 3
PARTITIONS = 2
NONE = ErrorCode.NONE


@dataclass
class Open:
    """What a producer id has written to a log and not ended: offsets."""

    epoch: int
    offsets: list[int] = field(default_factory=list)


@dataclass
class Log:
    end: int = 0
    committed: list[tuple[int, int]] = field(default_factory=list)
    open: dict[int, Open] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        return min((one.offsets[0] for one in self.open.values() if one.offsets), default=self.end)


@dataclass
class Known:
    """A transactional id."""

    producer_id: int
    epoch: int
    last_epoch: int = -1
    state: str = "Empty"
    partitions: set[int] = field(default_factory=set)
    started_ms: int = -1


class Model:
    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.now_ms = T0

    def refusal(self, name: str, producer: tuple[int, int]) -> ErrorCode:
        known = self.known.get(name)
        if known is None or known.producer_id != producer[0]:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return NONE if known.epoch == producer[1] else ErrorCode.PRODUCER_FENCED

    def finish(self, name: str, *, is_commit: bool) -> None:
        known = self.known[name]
        for partition in known.partitions:
            log = self.logs[partition]
            written = log.open.pop(known.producer_id, None)
            if written is not None and is_commit:
                log.committed += [(known.producer_id, offset) for offset in written.offsets]
            log.epochs[known.producer_id] = known.epoch
            log.end += 1
        known.partitions = set()
        known.state = "CompleteCommit" if is_commit else "CompleteAbort"

    def fence(self, name: str) -> None:
        self.known[name].epoch += 1
        self.known[name].last_epoch = -1
        self.finish(name, is_commit=False)

    def init(self, name: str, has: tuple[int, int] | None) -> ErrorCode:
        known = self.known.get(name)
        if known is None:
            return NONE
        if has is not None and has[0] != known.producer_id:
            return ErrorCode.PRODUCER_FENCED
        if known.state == "Ongoing":
            self.fence(name)
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if has is None:
            known.epoch, known.last_epoch = known.epoch + 1, -1
        elif has[1] == known.epoch:
            known.epoch, known.last_epoch = known.epoch + 1, known.epoch
        elif has[1] != known.last_epoch:
            return ErrorCode.PRODUCER_FENCED
        known.state = "Empty"
        return NONE

    def add(self, name: str, producer: tuple[int, int], partition: int) -> ErrorCode:
        code = self.refusal(name, producer)
        if code is NONE:
            known = self.known[name]
            if known.state != "Ongoing":
                known.state, known.started_ms = "Ongoing", self.now_ms
            known.partitions.add(partition)
        return code

    def produce(self, name: str, producer: tuple[int, int], partition: int) -> ErrorCode:
        log = self.logs[partition]
        written = log.open.get(producer[0])
        if written is None:
            code = self.refusal(name, producer)
            if code is ErrorCode.PRODUCER_FENCED:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if code is not NONE:
                return code
            if partition not in self.known[name].partitions:
                return ErrorCode.TRANSACTION_ABORTABLE
            written = log.open[producer[0]] = Open(producer[1])
        elif producer[1] < written.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        written.offsets.append(log.end)
        log.end += 1
        return NONE

    def end(self, name: str, producer: tuple[int, int], *, is_commit: bool) -> ErrorCode:
        code = self.refusal(name, producer)
        if code is NONE:
            wanted = "CompleteCommit" if is_commit else "CompleteAbort"
            if self.known[name].state == "Ongoing":
                self.finish(name, is_commit=is_commit)
            elif self.known[name].state != wanted:
                return ErrorCode.INVALID_TXN_STATE
        return code

    def advance(self, milliseconds: int) -> None:
        """Time moves by whole intervals: what is late then is aborted."""
        self.now_ms += milliseconds
        for name, known in self.known.items():
            if known.state == "Ongoing" and known.started_ms + TIMEOUT_MS < self.now_ms:
                self.fence(name)


class Actors:
    """Producers over sockets; each is reported what to do, and answered as the model says."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(T0)
        self.model = Model()
        self.broker = Broker(
            folder,
            clock=self.clock,
            transaction_state_log_num_partitions=2,
            segment_ms=2**62,
            log_cleaner_dedupe_buffer_size=1 << 20,
        )
        self.broker.start()
        self.broker.call(lambda running: running.node.manager.create_topic("t", PARTITIONS, {"segment.ms": 2**62}))
        self.actors: dict[tuple[str, int], TransactionalProducer] = {}
        self.connect()

    def connect(self) -> None:
        address = "127.0.0.1", self.broker.port
        before, self.actors = self.actors, {}
        for key in [(name, number) for name in IDS for number in range(ACTORS)]:
            new = self.actors[key] = TransactionalProducer(address, key[0], is_found=False)
            if key in before:
                old = before[key]
                old.client.close()
                new.producer_id, new.epoch, new.sequences = old.producer_id, old.epoch, old.sequences
        self.client = self.actors[IDS[0], 0].client
        find_coordinator(self.client, IDS[0])
        wait_until_loaded(self.client)

    def close(self) -> None:
        for one in self.actors.values():
            one.client.close()
        self.broker.stop()

    def do(self, name: str, number: int, what: str, partition: int, flag: bool) -> None:
        one, model = self.actors[name, number], self.model
        has = one.producer_id, one.epoch
        if what == "init":
            expected = model.init(name, has if flag and has[0] >= 0 else None)
            assert one.init(is_known=flag) == expected
            if expected is NONE and name not in model.known:
                assert one.epoch == 0
                model.known[name] = Known(one.producer_id, 0, -1)
            elif expected is NONE:
                assert (one.producer_id, one.epoch) == (model.known[name].producer_id, model.known[name].epoch)
        elif has[0] < 0:
            return
        elif what == "add":
            assert one.add(("t", partition)) == model.add(name, has, partition)
        elif what == "write":
            code = model.add(name, has, partition)
            assert one.add(("t", partition)) == code
            assert one.produce("t", partition) == model.produce(name, has, partition)
        elif what == "produce":
            assert one.produce("t", partition) == model.produce(name, has, partition)
        else:
            assert one.end(is_commit=flag) == model.end(name, has, is_commit=flag)

    def advance(self, intervals: int) -> None:
        self.clock.advance(intervals * CHECKED_EVERY_MS)
        self.model.advance(intervals * CHECKED_EVERY_MS)

    def restart(self, *, is_clean: bool) -> None:
        if is_clean:
            self.broker.stop()
        else:
            self.broker.kill()
        self.broker.start()
        # What was asked before is not remembered: whose answer was lost is fenced.
        for known in self.model.known.values():
            known.last_epoch = -1
        self.connect()

    def compact(self) -> None:
        """Nothing but the last record of each id is left in what is not the newest segment."""

        def clean(running: ServingBroker) -> None:
            manager = running.node.manager
            properties = {**running.node.topics.properties(TRANSACTIONS_TOPIC), "min.cleanable.dirty.ratio": "0.01"}
            topics_now.configure(running.node, TRANSACTIONS_TOPIC, properties)
            for key, log in manager.logs.items():
                if key.topic == TRANSACTIONS_TOPIC and log.segments.active.size_bytes:
                    log.roll()
            assert manager.cleaner is not None
            while manager.cleaner.clean_filthiest_log():
                pass

        self.broker.call(clean)

    def check(self) -> None:
        for name, known in self.model.known.items():
            found = self.actors[name, 0].described()
            assert (found.transaction_state, found.producer_id, found.producer_epoch) == (
                known.state,
                known.producer_id,
                known.epoch,
            )
            assert {p for topic in found.topics for p in topic.partitions} == known.partitions
        for partition, log in enumerate(self.model.logs):
            assert offset_of(self.client, "t", isolation=0, partition=partition) == log.end
            assert offset_of(self.client, "t", partition=partition) == log.stable
            visible = sorted((one for one in log.committed if one[1] < log.stable), key=lambda one: one[1])
            assert committed(self.client, "t", partition) == visible


_WHO = st.tuples(st.sampled_from(IDS), st.integers(0, ACTORS - 1))
_WHAT = st.sampled_from(["init", "add", "write", "write", "write", "produce", "end", "end"])
_STEP = st.one_of(
    st.tuples(_WHO, _WHAT, st.integers(0, PARTITIONS - 1), st.booleans()),
    st.tuples(_WHO, _WHAT, st.integers(0, PARTITIONS - 1), st.booleans()),
    st.tuples(_WHO, _WHAT, st.integers(0, PARTITIONS - 1), st.booleans()),
    st.sampled_from([1, 4, 7]),
    st.sampled_from(["stop", "kill", "compact"]),
)


@examples(30)
@given(steps=st.lists(_STEP, min_size=10, max_size=40))
def test_as_the_model_says(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        actors = Actors(Path(folder))
        try:
            for name in IDS:
                actors.do(name, 0, "init", 0, False)
            for step in steps:
                if isinstance(step, int):
                    actors.advance(step)
                elif step == "compact":
                    actors.compact()
                elif isinstance(step, str):
                    actors.restart(is_clean=step == "stop")
                    actors.check()
                else:
                    (name, number), what, partition, flag = step
                    actors.do(name, number, what, partition, flag)
            actors.check()
        finally:
            actors.close()
