"""Transactions in folders that change hands: what one broker was reported, the other one says, and goes on with.

| a transactional id | |
|---|---|
| committed, aborted | its transaction has ended |
| idle | has a producer, and never had a transaction |
| open | is in a transaction of two partitions |
| decided-commit, decided-abort | the broker ended after its decision: no marker is written yet |

Kafka 3.9.1 writes them; Tidelog serves the folder, completes what was decided, goes on with all of them; Kafka opens it again and
does the same. And the other way round: a folder of Tidelog's own that Kafka takes over by `tidelog handover`.

A broker cannot be made to end just after a decision. So that record is put into the folder, as the broker would have written it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidelog
from tests.broker.transactions.producers import TransactionalProducer, committed, find_coordinator, offset_of, producers
from tests.interop.test_handover import hand_over
from tests.kafka import Kafka391
from tests.kafka.clients import create_topics
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.state_log import read_batches
from tidelog.broker.coordinators.transactions.transaction import Transaction, TransactionState
from tidelog.broker.coordinators.transactions.transaction_records import read_transaction, read_transactions, transaction_entry
from tidelog.clock import SystemClock
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.records.validation import AppendOrigin
from tidelog.storage.log_manager import LogManager
from tidelog.wire.coordinator.transaction_log import TransactionLogKey
from tidelog.wire.coordinator.versioned import decode_versioned
from tidelog.wire.error_codes import ErrorCode

Producers = dict[str, TransactionalProducer]
DECIDED = {"decided-commit": True, "decided-abort": False}
IDS = ["committed", "aborted", "idle", "open", *DECIDED]
PARTITIONS = [0, 1, 2]
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


def insist(ask: Callable[[], int]) -> None:
    """Ask until the broker is ready for it."""
    until(lambda: ErrorCode(ask()), lambda code: code not in NOT_YET, ErrorCode.NONE)


def until(look: Callable[[], Any], is_over: Callable[[Any], bool], expected: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_over(found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S} s for {expected!r}: {found!r}")
        time.sleep(0.02)
    assert found == expected


def connect(bootstrap: str, before: Producers | None = None) -> Producers:
    """Return the producers, at another broker if they were at one before: with the ids, epochs and sequences that they have."""
    host, port = bootstrap.split(":")
    address = host, int(port)
    now = {}
    for transactional_id in IDS:
        one = TransactionalProducer(address, transactional_id, timeout_ms=600_000, is_found=False)
        if before is not None:
            old = before[transactional_id]
            old.client.close()
            one.producer_id, one.epoch, one.sequences = old.producer_id, old.epoch, old.sequences
        now[transactional_id] = one
    until(lambda: _is_found(now["idle"]), bool, True)
    return now


def _is_found(one: TransactionalProducer) -> bool:
    """Whether there is a coordinator, and it has loaded."""
    try:
        find_coordinator(one.client, one.transactional_id)
    except AssertionError:
        return False
    return one.described().error_code not in NOT_YET


def write(one: TransactionalProducer, *partitions: int) -> None:
    insist(lambda: one.add(*(("events", partition) for partition in partitions)))
    for partition in partitions:
        insist(lambda: one.produce("events", partition, count=2))  # noqa: B023


def end(one: TransactionalProducer, *, is_commit: bool = True) -> None:
    insist(lambda: one.end(is_commit=is_commit))
    until(
        lambda: one.described().transaction_state,
        lambda state: state.startswith("Complete"),
        "CompleteCommit" if is_commit else "CompleteAbort",
    )


def begin(all_of: Producers) -> None:
    """Bring each id into the state of the module's table; those that are to be decided are open."""
    for one in all_of.values():
        insist(one.init)
    insist(all_of["idle"].init)
    write(all_of["committed"], 0, 1)
    write(all_of["aborted"], 0, 2)
    end(all_of["committed"])
    end(all_of["aborted"], is_commit=False)
    for transactional_id, partitions in {"open": (1, 2), "decided-commit": (0, 1), "decided-abort": (0, 2)}.items():
        write(all_of[transactional_id], *partitions)


def said(all_of: Producers) -> dict[str, Any]:
    """What a broker says of the ids, and of the logs that they wrote to."""
    client = all_of["idle"].client
    answers: dict[str, Any] = {f"transaction {name}": all_of[name].described() for name in IDS}
    for partition in PARTITIONS:
        answers[f"committed {partition}"] = committed(client, "events", partition)
        answers[f"stable {partition}"] = offset_of(client, "events", partition=partition)
        answers[f"end {partition}"] = offset_of(client, "events", isolation=0, partition=partition)
        found = sorted(producers(client, "events", partition), key=lambda one: one.producer_id)
        answers[f"producers {partition}"] = [
            (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset) for one in found
        ]
    return answers


def decide(folder: Path) -> None:
    """Have it decided what becomes of two transactions, in a folder that nobody serves."""
    with LogManager(folder, SystemClock()) as manager:
        for key, log in manager.logs.items():
            if key.topic == "__transaction_state" and log.log_end_offset:
                known = read_transactions(read_batches(log, log.log_start_offset, log.log_end_offset))
                for transactional_id in known.keys() & DECIDED.keys():
                    decided = known[transactional_id].prepared(is_commit=DECIDED[transactional_id], now_ms=SystemClock().now_ms())
                    record = Record(0, decided.updated_ms, CREATE_TIME, *transaction_entry(decided))
                    epoch = log.leader_epochs.latest_epoch
                    log.append_as_leader(build_batch_v2([record]), epoch or 0, origin=AppendOrigin.COORDINATOR)


def check(all_of: Producers, before: dict[str, Any]) -> None:
    """The other broker completes what was decided; of everything else it says what the first one said."""
    for transactional_id, is_commit in DECIDED.items():
        state = "CompleteCommit" if is_commit else "CompleteAbort"
        until(lambda: all_of[transactional_id].described().transaction_state, lambda found: found.startswith("Complete"), state)  # noqa: B023
    now = said(all_of)
    for name in ("committed", "aborted", "idle", "open"):
        assert now[f"transaction {name}"] == before[f"transaction {name}"]
    assert [now[f"end {one}"] - before[f"end {one}"] for one in PARTITIONS] == [2, 1, 1]
    opened = all_of["open"].producer_id
    for partition in PARTITIONS:
        before_open = [one for one in before[f"producers {partition}"] if one[0] == opened]
        assert [one for one in now[f"producers {partition}"] if one[0] == opened] == before_open
    # The open transaction was the first to begin in two of them.
    assert now["stable 0"] == now["end 0"]
    assert [now[f"stable {one}"] for one in (1, 2)] == [before[f"stable {one}"] for one in (1, 2)]
    assert {*before["committed 0"], (all_of["decided-commit"].producer_id, before["stable 0"])} <= {*now["committed 0"]}
    assert all_of["decided-abort"].producer_id not in {producer_id for producer_id, _ in now["committed 0"]}


def go_on(all_of: Producers) -> None:
    """Producers go on where the other broker left them, are fenced as they would be by it, and new ones take over."""
    opened = all_of["open"]
    insist(lambda: opened.produce("events", 1))
    end(opened)
    for partition in PARTITIONS:
        client = opened.client
        assert offset_of(client, "events", partition=partition) == offset_of(client, "events", isolation=0, partition=partition)
    for transactional_id in ("committed", "idle", "decided-abort"):
        one = all_of[transactional_id]
        old = one.twin()
        insist(lambda: one.init(is_known=True))  # noqa: B023
        assert (one.producer_id, one.epoch) == (old.producer_id, old.epoch + 1)
        assert old.add(("events", 0)) == ErrorCode.PRODUCER_FENCED
        assert old.produce("events", 0, version=10) == ErrorCode.INVALID_PRODUCER_EPOCH


def check_records(folder: Path) -> None:
    """Each record that Kafka or Tidelog wrote is what Tidelog writes of what it says."""
    seen: set[TransactionState] = set()
    with LogManager(folder, SystemClock()) as manager:
        for key, log in manager.logs.items():
            if key.topic != "__transaction_state":
                continue
            for batch in read_batches(log, log.log_start_offset, log.log_end_offset):
                for record in batch.records:
                    assert record.key is not None
                    assert record.value is not None
                    found: Transaction = read_transaction(
                        decode_versioned(TransactionLogKey, record.key).transactional_id, record.value
                    )
                    assert transaction_entry(found) == (record.key, record.value)
                    seen.add(found.state)
    assert len(seen) == 6


def test_a_folder_goes_to_tidelog_and_back(tmp_path: Path) -> None:
    with Kafka391(tmp_path) as kafka:
        kafka.create_topic("events", 3)
        ours = connect(kafka.bootstrap)
        begin(ours)
        before = said(ours)
        kafka.stop()
        decide(kafka.data)
        with tidelog.Broker(kafka.data) as broker:
            ours = connect(broker.bootstrap_servers, ours)
            check(ours, before)
            go_on(ours)
            begin(ours)
            before = said(ours)
            broker.stop()
            decide(kafka.data)
        kafka.start()
        ours = connect(kafka.bootstrap, ours)
        check(ours, before)
        go_on(ours)
        for one in ours.values():
            one.client.close()
        kafka.stop()
        check_records(kafka.data)


def test_a_folder_of_tidelogs_becomes_kafkas(tmp_path: Path) -> None:
    """Also one that was not always left cleanly: leader epochs are above 0 then, which Kafka's begin at."""
    folder = tmp_path / "ours"
    with tidelog.Broker(folder, transaction_state_log_num_partitions=2, offsets_topic_num_partitions=1) as broker:
        create_topics(broker.bootstrap_servers, {"events": {"retention.ms": "-1"}}, 3)
        ours = connect(broker.bootstrap_servers)
        begin(ours)
        broker.kill()
        broker.start()
        ours = connect(broker.bootstrap_servers, ours)
        for transactional_id in ("committed", "aborted"):
            write(ours[transactional_id], 0)
            end(ours[transactional_id])
        before = said(ours)
    decide(folder)
    with Kafka391(tmp_path / "kafka") as kafka:
        topics = {"events": 3, "__transaction_state": 2}
        kafka.topics |= topics
        hand_over(folder, kafka, *(word for topic in topics for word in ("--topic", topic)))
        ours = connect(kafka.bootstrap, ours)
        check(ours, before)
        go_on(ours)
        write(ours["committed"], 0)
        end(ours["committed"])
        for one in ours.values():
            one.client.close()
