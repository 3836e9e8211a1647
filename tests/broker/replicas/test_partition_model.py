"""Replicas under faults: no committed record is ever lost, high watermarks do not go back for a reader, replicas become equal.

Committed is what lies below any broker's high watermark at any moment, and so what any producer with acks=all, or any reader,
has seen. Faults are those of `simulated_cluster`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random, randrange

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
    """Three brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.promises = Promises()
        self.cluster = SimulatedCluster(3, 1)

    @initialize(min_insync_replicas=st.integers(1, 2))
    def begin(self, min_insync_replicas: int) -> None:
        self.cluster.settings.min_insync_replicas = min_insync_replicas

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
    def lose_the_disk_for_a_while(self, broker: int) -> None:
        if self.cluster.brokers[broker].is_up:
            self.cluster.brokers[broker].disk_is_well_again()

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
    def promises_are_kept(self) -> None:
        self.promises.check(self.cluster)

    def teardown(self) -> None:
        self.promises.check_healed(self.cluster)


class Promises:
    """What holds at any moment. `committed` is what nobody may lose any more."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, int]] = []
        self.read: dict[tuple[int, int, int], int] = {}

    def check(self, cluster: SimulatedCluster) -> None:
        for broker in cluster.brokers.values():
            if not broker.is_up:
                continue
            seen = broker.log.records[: broker.log.high_watermark]
            both = min(len(seen), len(self.committed))
            assert seen[:both] == self.committed[:both], f"broker {broker.node_id} shows other records as committed"
            self.committed += seen[both:]
            reader = broker.node_id, broker.epoch, broker.partition.leader_epoch
            assert broker.log.high_watermark >= self.read.get(reader, 0), "a high watermark goes back"
            self.read[reader] = broker.log.high_watermark
        for broker_id in cluster.isr:
            kept = cluster.brokers[broker_id].log.records[: len(self.committed)]
            assert kept == self.committed, f"broker {broker_id} may be elected without all that is committed"

    def check_healed(self, cluster: SimulatedCluster) -> None:
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
    play(int(os.environ.get("TIDELOG_EXAMPLES", drawn(1000 if IS_SOAK else 120))))


CALM: tuple[Callable[[ReplicasUnderFaults, Random], object], ...] = (
    lambda machine, draw: machine.produce_where_it_is_led(draw.randint(1, 3)),
    lambda machine, draw: machine.produce(draw.randint(1, 3), 1),
    lambda machine, draw: machine.replicate(draw.randint(1, 3), draw.randint(0, 9)),
    lambda machine, draw: machine.replicate(draw.randint(1, 3), draw.randint(0, 9)),
    lambda machine, draw: machine.fetch(draw.randint(1, 3)),
    lambda machine, draw: machine.learn(draw.randint(1, 3)),
    lambda machine, draw: machine.learn_all(draw.randint(1, 3)),
    lambda machine, draw: machine.deliver_oldest(3),
    lambda machine, draw: machine.deliver(draw.randint(0, 99), 3),
    lambda machine, draw: machine.deliver(draw.randint(0, 99), 3),
    lambda machine, draw: machine.time_passes(draw.choice((1, 3, 12))),
    lambda machine, draw: machine.flush(draw.randint(1, 3)),
)
FAULTS: tuple[Callable[[ReplicasUnderFaults, Random], object], ...] = (
    lambda machine, draw: machine.lose(draw.randint(0, 99)),
    lambda machine, draw: machine.stop(draw.randint(1, 3)),
    lambda machine, draw: machine.restart(draw.randint(1, 3), draw.randint(0, 20)),
    lambda machine, draw: machine.lose_the_disk_for_a_while(draw.randint(1, 3)),
    lambda machine, draw: machine.fence(draw.randint(1, 3)),
    lambda machine, draw: machine.unfence(draw.randint(1, 3)),
    lambda machine, draw: machine.unfence(draw.randint(1, 3)),
    lambda machine, draw: machine.elect(draw.randint(1, 3)),
    lambda machine, draw: machine.elect(draw.randint(1, 3)),
)


def walk(seed: int, steps: int = 120) -> None:
    """Play a history in which much happens: some have many faults, some few."""
    draw = Random(seed)
    machine = ReplicasUnderFaults()
    machine.begin(draw.randint(1, 2))
    faults = 0.35 * draw.random()
    for _ in range(steps):
        draw.choice(FAULTS if draw.random() < faults else CALM)(machine, draw)
        machine.promises_are_kept()
    machine.teardown()


def test_random_histories() -> None:
    """A thousand in a second, and so the ones that find what is wrong.

    Of fifteen rules of `Partition` that were broken by hand nine fail here, and the two that came with disks that fail. The other
    six break no promise that is looked at.
    """
    first = randrange(1 << 40) if IS_SOAK else 0
    for seed in range(first, first + (100_000 if IS_SOAK else 1000)):
        try:
            walk(seed)
        except AssertionError as error:
            raise AssertionError(f"history {seed}") from error
