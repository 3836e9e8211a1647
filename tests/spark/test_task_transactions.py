"""Tasks send in transactions of their own, and the driver ends them: each row once, through retries, crashes and replays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.spark.broker_sink import sink_broker, sink_client, sink_options, spooled, values  # noqa: F401
from tidelog.client.client import Client
from tidelog.client.produce.transaction_coordinator import TransactionCoordinator
from tidelog.clock import ManualClock
from tidelog.errors import BrokerUnreachableError, ProducerFencedError
from tidelog.spark.sink import task_transactions
from tidelog.spark.sink.broker_target import (
    GROUP_PREFIX,
    abort_at_broker,
    commit_to_broker,
    send_in_transaction,
)
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.task_transactions import TaskTransaction, TaskTransactions, id_of


def send(options: SinkOptions, task: str, batch_id: int | None, *rows: tuple[str, int]) -> TaskTransaction | None:
    return send_in_transaction(options, spooled(options, *rows).batches(), task, batch_id)


def sent(options: SinkOptions, task: str, batch_id: int | None, *rows: tuple[str, int]) -> TaskTransaction:
    found = send(options, task, batch_id, *rows)
    assert found is not None
    return found


def test_a_micro_batch_and_its_replay(client: Client, options: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_transactions, "IN_A_GROUP", 2)
    opened = [sent(options, f"{task}-0", 7, *(("a", 10 * task + row) for row in range(10))) for task in range(5)]
    assert values(client, "a") == []
    assert [one.record_count for one in opened] == [10] * 5
    commit_to_broker(options, [spooled(options, ("a", 50), ("b", 51))], 7, opened=opened)
    assert (values(client, "a"), values(client, "b")) == (list(range(51)), [51])

    assert send(options, "0-0", 7, ("a", 0)) is None
    commit_to_broker(options, [spooled(options, ("a", 50), ("b", 51))], 7)
    assert values(client, "a", "read_uncommitted") == list(range(51))
    # The next one, with the same tasks and fewer of them.
    commit_to_broker(options, [], 8, opened=[sent(options, "0-0", 8, ("a", 51))])
    assert values(client, "a") == list(range(52))


def test_a_driver_that_dies_once_it_is_decided(client: Client, options: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [sent(options, f"{task}-0", 3, ("crash", task)) for task in range(3)]
    end = TransactionCoordinator.end
    ended: list[bool] = []

    def dies(coordinator: TransactionCoordinator, producer: object, *, is_commit: bool) -> None:
        ended.append(is_commit)
        if len(ended) == 3:  # The driver's own, the first task's, ...
            raise BrokerUnreachableError("by a test")
        end(coordinator, producer, is_commit=is_commit)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(TransactionCoordinator, "end", dies)
        with pytest.raises(BrokerUnreachableError):
            commit_to_broker(options, [], 3, opened=opened)
    # Spark then calls abort, which must not abort what is decided.
    abort_at_broker(options, 3, opened)
    assert values(client, "crash") in ([], [0])  # an open transaction in its partition may hold up the first one
    assert send(options, "0-0", 3, ("crash", 0)) is None
    commit_to_broker(options, [], 3)
    assert values(client, "crash") == [0, 1, 2]
    assert values(client, "crash", "read_uncommitted") == [0, 1, 2]


def test_attempts_that_spark_does_not_accept(client: Client, options: SinkOptions) -> None:
    sent(options, "0-0", 1, ("again", 0))  # killed; its message never came
    won = sent(options, "0-1", 1, ("again", 0))
    sent(options, "0-2", 1, ("again", 0))  # a speculative one
    commit_to_broker(options, [], 1, opened=[won])
    # None is open: a reader of committed records gets to the end.
    assert values(client, "again") == [0]
    assert values(client, "again", "read_uncommitted") == [0, 0, 0]
    commit_to_broker(options, [], 2, opened=[sent(options, "0-0", 2, ("again", 1))])
    assert values(client, "again") == [0, 1]


def test_a_micro_batch_that_fails(client: Client, options: SinkOptions) -> None:
    opened = [sent(options, f"{task}-0", 1, ("failed", task)) for task in range(2)]
    sent(options, "2-0", 1, ("failed", 2))  # this task failed
    abort_at_broker(options, 1, opened)
    assert values(client, "failed") == []
    with pytest.raises(ProducerFencedError):
        commit_to_broker(options, [spooled(options, ("failed", 9))], 1, opened=opened)
    assert values(client, "failed") == []
    commit_to_broker(options, [], 1, opened=[sent(options, "0-0", 1, ("failed", 0))])
    assert values(client, "failed") == [0]


def test_a_batch_write(client: Client, options: SinkOptions) -> None:
    options = replace(options, query_id=None)
    opened = [sent(options, f"{task}-0", None, ("batch", task)) for task in range(3)]
    commit_to_broker(options, [spooled(options, ("batch", 3))], None, opened=opened)
    commit_to_broker(options, [], None, opened=[sent(options, "0-0", None, ("batch", 4))])
    assert values(client, "batch") == [0, 1, 2, 3, 4]


def test_a_transaction_that_is_too_old_is_not_decided(client: Client, options: SinkOptions) -> None:
    clock = ManualClock(1_700_000_000_000)
    opened = send_in_transaction(options, spooled(options, ("old", 1)).batches(), "0-0", 1, clock)
    assert opened is not None
    clock.advance(900_000)
    with pytest.raises(ProducerFencedError, match="about to time out"):
        commit_to_broker(options, [], 1, clock, [opened])
    abort_at_broker(options, 1, [opened])
    assert values(client, "old") == []


def test_rows_that_are_lost_after_all_are_an_error(client: Client, options: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver died right after the decision, and stayed away for longer than the transactions' timeout."""
    opened = [sent(options, f"{task}-0", 1, ("lost", task)) for task in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(TaskTransactions, "commit", lambda *_: None)
        patched.setattr(TaskTransactions, "abort_others", lambda _: None)
        commit_to_broker(options, [], 1, opened=opened)
    TransactionCoordinator(client.cluster, id_of(options.transactional_id or "", "1-0")).init(1_000)  # as a timeout does it
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match="rows of 1 of 2 tasks") as raised:
            commit_to_broker(options, [], 1)
        assert f"{GROUP_PREFIX}{options.transactional_id}" in str(raised.value)
        assert "option atomic" in str(raised.value)
    assert values(client, "lost") == [0]
