"""Replicas under faults: no committed record is ever lost, high watermarks do not go back for a reader, replicas become equal.

Committed is what lies below any broker's high watermark at any moment, and so what any producer with acks=all, or any reader,
has seen. Faults are those of `simulated_cluster`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.broker.replicas.simulated_cluster import MAX_LAG_S, SimulatedCluster
from tests.examples import IS_SOAK, drawn

BROKERS = st.integers(1, 3)
NUMBERS = st.integers(0, 1000)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate) + ((Phase.shrink,) if IS_SOAK else ())
"""Making a history shorter takes minutes."""


class ReplicasUnderFaults(RuleBasedStateMachine):
    """Three brokers. `committed` is what nobody may lose any more."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[tuple[int, int]] = []
        self.read: dict[tuple[int, int, int], int] = {}

    @initialize(min_insync_replicas=st.integers(1, 2))
    def begin(self, min_insync_replicas: int) -> None:
        self.cluster = SimulatedCluster(3, min_insync_replicas)

    # --- what brokers do

    @rule(broker=BROKERS, count=st.integers(1, 3))
    def produce(self, broker: int, count: int) -> None:
        self.cluster.produce(broker, count)

    @rule(count=st.integers(1, 3))
    def produce_where_it_is_led(self, count: int) -> None:
        if self.cluster.leader > 0:
            self.cluster.produce(self.cluster.leader, count)

    @rule(broker=BROKERS)
    def fetch(self, broker: int) -> None:
        if self.cluster.brokers[broker].is_up:
            self.cluster.brokers[broker].fetch()

    @rule(broker=BROKERS, number=NUMBERS)
    def replicate(self, broker: int, number: int) -> None:
        """A fetch without any trouble."""
        cluster = self.cluster
        one = cluster.brokers[broker]
        before = len(cluster.messages)
        if one.is_up:
            one.fetch()
            while len(cluster.messages) > before:
                sent = type(cluster.messages[-1]).__name__
                if not sent.startswith("Fetch"):
                    break
                cluster.deliver(len(cluster.messages) - 1, 1 + number % 4)

    @rule(broker=BROKERS)
    def flush(self, broker: int) -> None:
        one = self.cluster.brokers[broker]
        if one.is_up:
            one.log.flush()
            one.checkpoint = one.log.high_watermark

    @rule(broker=BROKERS)
    def learn(self, broker: int) -> None:
        one = self.cluster.brokers[broker]
        if one.is_up and one.applied < len(self.cluster.metadata):
            one.learn()

    @rule(broker=BROKERS)
    def learn_all(self, broker: int) -> None:
        one = self.cluster.brokers[broker]
        while one.is_up and one.applied < len(self.cluster.metadata):
            one.learn()

    @rule(tenths=st.integers(1, 12))
    def time_passes(self, tenths: int) -> None:
        self.cluster.now_s += tenths * MAX_LAG_S / 10
        for broker in self.cluster.brokers.values():
            if broker.is_up:
                broker.partition.maybe_shrink(self.cluster.now_s)

    # --- what the network does

    @rule(number=NUMBERS, at_most=st.integers(1, 5))
    def deliver(self, number: int, at_most: int) -> None:
        if self.cluster.messages:
            self.cluster.deliver(number % len(self.cluster.messages), at_most)

    @rule(at_most=st.integers(1, 5))
    def deliver_oldest(self, at_most: int) -> None:
        if self.cluster.messages:
            self.cluster.deliver(0, at_most)

    @rule(number=NUMBERS)
    def lose(self, number: int) -> None:
        if self.cluster.messages:
            self.cluster.lose(number % len(self.cluster.messages))

    # --- what goes wrong

    @rule(broker=BROKERS)
    def stop(self, broker: int) -> None:
        self.cluster.stop(broker)

    @rule(broker=BROKERS, keeps=st.integers(0, 30))
    def restart(self, broker: int, keeps: int) -> None:
        if not self.cluster.brokers[broker].is_up:
            self.cluster.restart(broker, keeps)

    @rule(broker=BROKERS)
    def fence(self, broker: int) -> None:
        self.cluster.fence(broker)

    @rule(broker=BROKERS)
    def unfence(self, broker: int) -> None:
        if self.cluster.brokers[broker].is_up:
            self.cluster.unfence(broker)

    @rule(broker=BROKERS)
    def elect(self, broker: int) -> None:
        self.cluster.elect(broker)

    # --- what is promised

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        cluster = self.cluster
        for broker in cluster.brokers.values():
            if broker.is_up:
                seen = broker.log.records[: broker.log.high_watermark]
                both = min(len(seen), len(self.committed))
                assert seen[:both] == self.committed[:both], f"broker {broker.node_id} shows other records as committed"
                self.committed += seen[both:]
        for broker_id in cluster.isr:
            kept = cluster.brokers[broker_id].log.records[: len(self.committed)]
            assert kept == self.committed, f"broker {broker_id} may be elected without all that is committed"

    @invariant()
    def high_watermarks_do_not_go_back(self) -> None:
        for broker in self.cluster.brokers.values():
            if broker.is_up:
                reader = broker.node_id, broker.epoch, broker.partition.leader_epoch
                assert broker.log.high_watermark >= self.read.get(reader, 0)
                self.read[reader] = broker.log.high_watermark

    def teardown(self) -> None:
        cluster = self.cluster
        cluster.heal()
        logs = [broker.log for broker in cluster.brokers.values()]
        assert logs[0].records == logs[1].records == logs[2].records, "replicas differ"
        # A leader notes epochs in which it has written nothing, too.
        written = {epoch for epoch, _ in logs[0].records}
        epochs = {tuple(entry for entry in log.epochs.entries if entry.epoch in written) for log in logs}
        assert len(epochs) == 1, "leader epochs differ"
        assert set(cluster.isr) == {1, 2, 3}, f"only {cluster.isr} are in sync"
        assert {log.high_watermark for log in logs} == {len(logs[0].records)}, "not all is committed"
        assert logs[0].records[: len(self.committed)] == self.committed


def play(examples: int) -> None:
    run_state_machine_as_test(
        ReplicasUnderFaults,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=not IS_SOAK,
            phases=PHASES,
        ),
    )


def test_replicas_under_faults() -> None:
    play(int(os.environ.get("TIDELOG_EXAMPLES", drawn(3000 if IS_SOAK else 400))))
