"""Copies a topic's records to another, exactly once, until it is asked to end: the offsets it commits are in its transactions.

    python -m tests.broker.eos.copier BOOTSTRAP --source IN --target OUT --group G --transactional-id T

A record goes to the partition that it came from; its value becomes `<value>:<offset it came from>`. Each batch is a transaction;
a share of them is aborted on purpose, and done again. Output, a line for each:

| | |
|---|---|
| `ready` | its producer has its id, it has asked to be a member of the group |
| `assigned PARTITION...` | after each rebalance, all that it has |
| `committed RECORDS` | a transaction |
| `aborted REASON` | a transaction; `wanted` is the reason of those on purpose |
| `fenced REASON` | another producer has its id; the status is 3 |
| `stuck` | a transaction took too long; the status is 4 |
| `astray` | it does not know any more where to go on in a partition; the status is 4 |

A group's coordinator that was away, and came back, keeps librdkafka 2.16 waiting in the middle of a transaction without end,
whichever broker it is; that is what `stuck` is for. And when a group is rebalanced while an offset is not known yet
(UNSTABLE_OFFSET_COMMIT), it takes the group to have none, and would start over: `auto.offset.reset` is `error` for that, and the
group has its first offsets from `copying`. The next process of the same transactional id goes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.patience import PATIENCE_S

FENCED, STUCK = 3, 4
CALL_S = PATIENCE_S
T = TypeVar("T")


class FencedError(Exception):
    """Another has this producer's id, or its state is lost for other reasons: only a new one can go on."""


class AstrayError(Exception):
    """The consumer has taken the group's offset of a partition for unknown."""


class MustAbortError(Exception):
    """The transaction cannot be committed any more."""


def tell(*words: object) -> None:
    print(*words, flush=True)


def insist(call: Callable[..., T], *arguments: Any) -> T:
    """Call a step of a transaction until it has an outcome: a broker that is gone comes back."""
    deadline = time.monotonic() + CALL_S
    while True:
        try:
            return call(*arguments)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.fatal():
                raise FencedError(error.name()) from raised
            if error.txn_requires_abort():
                raise MustAbortError(error.name()) from raised
            if not error.retriable() or time.monotonic() > deadline:
                raise


class Copier:
    """One member of the group, with one producer."""

    def __init__(self, options: argparse.Namespace) -> None:
        common = {"bootstrap.servers": options.bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
        common |= {"log_level": 0, "client.id": options.transactional_id, "socket.keepalive.enable": True}
        self.options = options
        self.rng = random.Random(options.seed)
        self.ends = False
        self.began: float | None = None
        """When the transaction began that it is in, by time.monotonic."""
        self.assigned: set[int] = set()
        self.producer = Producer(
            common
            | {
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_timeout_ms,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
            }
        )
        self.consumer = Consumer(
            common
            | {
                "group.id": options.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": options.assignor,
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 20,
            }
        )

    def run(self) -> None:
        insist(self.producer.init_transactions, CALL_S)
        self.consumer.subscribe(
            [self.options.source], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        threading.Thread(target=self._watch, daemon=True).start()
        tell("ready")
        while not self.ends:
            found = self.consumer.consume(self.options.batch, 0.05)
            for error in (message.error() for message in found):
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise AstrayError
            batch = [message for message in found if message.error() is None]
            if batch:
                self.began = time.monotonic()
                self._copy(batch)
                self.began = None
        self.consumer.close()

    def _copy(self, batch: list[Message]) -> None:
        try:
            insist(self.producer.begin_transaction)
            for message in batch:
                value = b"%s:%d" % (message.value(), message.offset() or 0)
                self.producer.produce(self.options.target, value, message.key(), message.partition() or 0)
            if self.rng.random() < self.options.abort_share:
                self.producer.flush(CALL_S)
                raise MustAbortError("wanted")
            # The largest of each partition: the batch is in order.
            ends = {message.partition() or 0: (message.offset() or 0) + 1 for message in batch}
            offsets = [TopicPartition(self.options.source, partition, end) for partition, end in ends.items()]
            insist(self.producer.send_offsets_to_transaction, offsets, self.consumer.consumer_group_metadata(), CALL_S)
            insist(self.producer.commit_transaction, CALL_S)
        except MustAbortError as reason:
            insist(self.producer.abort_transaction, CALL_S)
            self._rewind(batch)
            tell("aborted", reason)
        else:
            tell("committed", len(batch))

    def _watch(self) -> None:
        """End the process where it stands still; its main thread would not see a signal. From a thread of its own."""
        while True:
            time.sleep(0.2)
            began = self.began
            if began is not None and time.monotonic() - began > self.options.stuck_s:
                tell("stuck")
                os._exit(STUCK)

    def _rewind(self, batch: list[Message]) -> None:
        """Back to where the batch began: all before it is committed. A partition that went to another is that one's."""
        begins: dict[int, int] = {}
        for message in batch:
            begins.setdefault(message.partition() or 0, message.offset() or 0)
        for partition, offset in begins.items():
            if partition in self.assigned:
                self.consumer.seek(TopicPartition(self.options.source, partition, offset))

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned |= {each.partition for each in partitions}
        tell("assigned", *sorted(self.assigned))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned -= {each.partition for each in partitions}


def main() -> int:
    parser = argparse.ArgumentParser(description="Copy a topic's records to another, exactly once.")
    parser.add_argument("bootstrap")
    for name in ("source", "target", "group", "transactional-id"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--abort-share", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--session-timeout-ms", type=int, default=3000)
    parser.add_argument("--transaction-timeout-ms", type=int, default=10_000)
    parser.add_argument("--stuck-s", type=float, default=10.0)
    parser.add_argument("--assignor", default="range")
    copier = Copier(parser.parse_args())

    def end(_number: int, _frame: object) -> None:
        copier.ends = True

    signal.signal(signal.SIGTERM, end)
    # Where it stands still, when a test wants to know.
    faulthandler.register(signal.SIGUSR1)
    try:
        copier.run()
    except FencedError as reason:
        tell("fenced", reason)
        return FENCED
    except AstrayError:
        tell("astray")
        return STUCK
    return 0


if __name__ == "__main__":
    sys.exit(main())
