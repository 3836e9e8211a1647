"""Faults, one after another, under a load; then the verdict."""

from __future__ import annotations

import math
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.cluster_soak import judge
from tests.cluster_soak.group_reader import GroupReader
from tests.cluster_soak.judge import Place
from tests.cluster_soak.schedule import Fault, groups
from tests.cluster_soak.senders import IdempotentSender, TransactionalSender
from tests.cluster_soak.soak_cluster import SoakCluster, log_of
from tests.cluster_soak.time_answers import asked_times, compare_leaders, expected, settled_answers
from tests.cluster_soak.topics import CONFIGS, HISTORY, PARTITIONS, SENT, TRANSACTED, time_of
from tests.kafka.clients import make_topics
from tests.kafka.java import wait_until

HISTORY_RECORDS = 9000
PADDING = b"x" * 1000
PATIENCE_S = 600
BETWEEN_S = 0.5
"""How long clients are left alone between two faults."""


@dataclass
class Outcome:
    """What a soak has found."""

    faults: Counter[str] = field(default_factory=Counter)
    longest_s: dict[str, float] = field(default_factory=dict)
    """By kind of fault: the longest that a record waited for its answer."""
    acknowledged: int = 0
    transactions: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    twice: int = 0
    sent_again: int = 0
    """There twice because their producer began a new epoch and sent them again in it."""
    read_by_group: int = 0
    hung: int = 0
    times_compared: int = 0
    replicas_compared: int = 0
    wrong: list[str] = field(default_factory=list)

    def table(self) -> str:
        rows = [
            *(
                (f"faults: {kind}", f"{count}, longest wait {self.longest_s[kind]:.1f} s")
                for kind, count in sorted(self.faults.items())
            ),
            ("faults in all", str(sum(self.faults.values()))),
            ("records acknowledged", str(self.acknowledged)),
            ("transactions committed", str(self.transactions)),
            ("errors at clients", ", ".join(f"{name}: {count}" for name, count in self.failed.items()) or "none"),
            ("acknowledged and not where promised", str(self.lost)),
            ("there twice", str(self.twice)),
            ("sent again in a new producer epoch", str(self.sent_again)),
            ("read by the group", str(self.read_by_group)),
            ("its consumers that hung", str(self.hung)),
            ("answers for times compared", str(self.times_compared)),
            ("partitions whose replicas were compared", str(self.replicas_compared)),
            ("wrong", str(len(self.wrong))),
        ]
        return "\n".join(f"  {name:<42} {value}" for name, value in rows)


class Soak:
    """One run, in a folder of its own."""

    def __init__(self, cluster: SoakCluster, *, seed: int, per_second: int) -> None:
        self.cluster = cluster
        self.outcome = Outcome()
        self._seed = seed
        bootstrap = cluster.bootstrap
        self._sender = IdempotentSender(bootstrap, per_second, cluster.folder / "sender.log")
        self._transactions = [TransactionalSender(bootstrap, f"pays-{number}", 0.05) for number in range(2)]
        self._reader = GroupReader(bootstrap, cluster.folder / "reader.log")
        self._history: dict[Place, array[int]] = {}

    def run(self, faults: Sequence[Fault], elections: int, ends: float) -> Outcome:
        """Do all of it; no fault begins after `ends` (`time.monotonic`)."""
        self._create()
        self._write_history()
        for client in (self._sender, *self._transactions, self._reader):
            client.start()
        for group in groups(faults):
            if time.monotonic() > ends:
                break
            self._together(group, len(faults))
        say(f"{sum(self.outcome.faults.values())} faults are over; clients end")
        self._judge(elections)
        return self.outcome

    def _create(self) -> None:
        self.cluster.wait_for_brokers()
        topics = [NewTopic(name, PARTITIONS[name], 3, config=config) for name, config in CONFIGS.items()]
        make_topics(self.cluster.bootstrap, topics)
        self.cluster.wait_in_sync()

    def _write_history(self) -> None:
        """Write what stays as it is, with times in any order, in several segments."""
        places = [(HISTORY, number) for number in range(PARTITIONS[HISTORY])]
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(HISTORY_RECORDS):
            place = places[number % len(places)]
            self._history.setdefault(place, array("q")).append(time_of(number))
            producer.produce(HISTORY, b"%d " % number + PADDING, partition=place[1], timestamp=time_of(number))
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def _together(self, group: Sequence[Fault], of: int) -> None:
        """Let one fault come, or two at once."""
        time.sleep(BETWEEN_S)
        self._sender.longest_wait_s()
        began = time.monotonic()
        for fault in group:
            say(f"fault {fault.number:>3}/{of}  {fault}")
        with ExitStack() as stack:
            under_way = [(stack.enter_context(closing(self.cluster.run(fault))), fault) for fault in group]
            ends = dict.fromkeys(range(len(under_way)), began)
            while ends:
                index = min(ends, key=ends.__getitem__)
                time.sleep(max(0.0, ends[index] - time.monotonic()))
                running, fault = under_way[index]
                ends[index] = time.monotonic() + fault.lasts_s
                if next(running, self) is self:
                    del ends[index]
        in_sync_s = self.cluster.wait_in_sync()
        for client in (self._sender, *self._transactions, self._reader):
            client.check_alive()
        longest_s = self._sender.longest_wait_s()
        outcome = self.outcome
        for fault in group:
            outcome.faults[fault.kind] += 1
            outcome.longest_s[fault.kind] = max(outcome.longest_s.get(fault.kind, 0.0), longest_s)
        say(
            f"    over after {time.monotonic() - began:>5.1f} s  in sync after {in_sync_s:>4.1f} s"
            f"  longest wait {longest_s:>5.1f} s  acknowledged {self._sender.acknowledged:>8}"
            f"  transactions {sum(one.committed for one in self._transactions):>6}  read {self._reader.count:>8}"
        )
        self._ask_history(group[-1].number)

    def _ask_history(self, number: int) -> None:
        asked = {place: asked_times(times, self._seed + number, 4) for place, times in self._history.items()}
        for (place, at), answer in settled_answers(self.cluster, asked).items():
            self.outcome.times_compared += 1
            if answer != expected(self._history[place], at):
                self._wrong([f"after fault {number}, {place} at {at}: {answer}"])

    def _judge(self, elections: int) -> None:
        cluster, outcome, wrong = self.cluster, self.outcome, self.outcome.wrong
        for client in (self._sender, *self._transactions):
            client.stop()
        outcome.acknowledged = self._sender.acknowledged
        outcome.transactions = sum(one.committed for one in self._transactions)
        outcome.failed = sum((one.errors for one in self._transactions), Counter(self._sender.errors))
        found = judge.read_numbered(cluster.bootstrap, SENT, wrong)
        there = sum(map(len, found.numbers.values()))
        say(f"{there} records are there")
        try:
            wait_until(lambda: self._has_read(there), "the group to have read all", 2 * PATIENCE_S)
        except TimeoutError as error:
            wrong.append(str(error))
        self._reader.stop()
        outcome.read_by_group, outcome.hung = self._reader.count, self._reader.hung
        lost, doubles = judge.check_sent(self._sender, found, wrong)
        lost_of_transactions, outcome.twice = judge.check_transactions(self._transactions, cluster.bootstrap, wrong)
        outcome.lost = lost + lost_of_transactions
        judge.check_reader(self._reader, found, wrong)
        say(f"each replica is elected in turn, {elections} times")
        compared, differing = compare_leaders(cluster, {**self._history, **found.times}, elections, self._seed)
        outcome.times_compared += compared
        self._wrong(differing)
        self._judge_replicas()
        for double in doubles:
            say(f"{double}: {' and '.join(map(judge.describe, double.batches(cluster.brokers[1].data)))}")
        twice, outcome.sent_again = judge.judge_doubles(doubles, cluster.brokers[1].data, wrong)
        outcome.twice += twice

    def _has_read(self, records: int) -> bool:
        self._reader.check_alive()
        return sum(len(self._reader.seen[place]) for place in SENT) >= records

    def _judge_replicas(self) -> None:
        cluster, outcome = self.cluster, self.outcome
        places = [*SENT, *self._history, *((TRANSACTED, number) for number in range(PARTITIONS[TRANSACTED]))]
        cluster.wait_in_sync()
        judge.write_closing(cluster.bootstrap, places)
        folders = {node_id: broker.data for node_id, broker in cluster.brokers.items()}
        outcome.replicas_compared = judge.wait_equal(folders, places, outcome.wrong)
        for broker in cluster.brokers.values():
            broker.stop()
        say(judge.verify_replicas(folders.values(), outcome.wrong))
        for node_id, kind in enumerate(cluster.kinds, 1):
            if kind == "tidelog" and "Traceback" in log_of(cluster.brokers[node_id]):
                outcome.wrong.append(f"broker {node_id} has logged a traceback")

    def _wrong(self, sentences: list[str]) -> None:
        self.outcome.wrong += sentences
        for sentence in sentences[:10]:
            say(f"WRONG: {sentence}")


def soak(
    folder: Path,
    brokers: str,
    faults: Sequence[Fault],
    *,
    seed: int,
    elections: int = 50,
    per_second: int = 500,
    minutes: float = math.inf,
) -> Outcome:
    """Run these faults on a cluster of such brokers, those that begin in so many minutes, and return what was found."""
    ends = time.monotonic() + minutes * 60
    with SoakCluster(folder, brokers) as cluster:
        return Soak(cluster, seed=seed, per_second=per_second).run(faults, elections, ends)


_began = time.monotonic()


def say(text: str) -> None:
    """Print a line, and when."""
    print(f"{time.monotonic() - _began:>7.1f} s  {text}", flush=True)
