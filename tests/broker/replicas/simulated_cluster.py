"""Brokers with a replica of one partition each, a controller, and the messages between them: all of it data, moved step by step.

Messages are lost, late and out of order; brokers stop with what they have on the disk, and come back; the controller fences
whom it does not hear of, dead or alive. It elects from the ISR only, and answers AlterPartition as Kafka's does. What is more
than that is `Partition`.

| rule of the controller's | |
|---|---|
| a broker that comes back is fenced first | so it leaves the ISR before its lost records could count |
| the last one in the ISR stays in it | and so has lost nothing: what Kafka cannot keep without that is not promised |
"""

from __future__ import annotations

from typing import NamedTuple

from tests.broker.replicas.simulated_log import Settings, SimulatedLog
from tidelog.broker.replicas.following.truncation_rules import truncation_by_epoch
from tidelog.broker.replicas.partition import CommittedIsr, IsrChange, Partition, ReplicaState
from tidelog.metadata.records import NO_LEADER, PartitionRecord
from tidelog.model import TopicPartition
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.wire.error_codes import ErrorCode

KEY = TopicPartition("orders", 0)
MAX_LAG_S = 10.0


class Registered(NamedTuple):
    epoch: int
    is_alive: bool


class Fetch(NamedTuple):
    follower: int
    broker_epoch: int
    number: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Fetched(NamedTuple):
    asked: Fetch
    parted: tuple[int, int] | None
    records: tuple[tuple[int, int], ...]
    high_watermark: int


class Alter(NamedTuple):
    leader: int
    broker_epoch: int
    change: IsrChange


class Altered(NamedTuple):
    asked: Alter
    answer: CommittedIsr | ErrorCode


Message = Fetch | Fetched | Alter | Altered


class Broker:
    """A broker, and what it knows of the cluster: the metadata up to `applied`."""

    def __init__(self, node_id: int, cluster: SimulatedCluster) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.log = SimulatedLog(cluster.settings)
        self.checkpoint = 0
        self.is_up = False
        self.epoch = -1
        self.applied = 0
        self.known: dict[int, Registered] = {}
        self.fetches = 0
        self.partition = self._new_partition()

    def _new_partition(self) -> Partition:
        return Partition(KEY, self.node_id, self, MAX_LAG_S, self._propose)

    def _propose(self, _: Partition, change: IsrChange) -> None:
        self.cluster.messages.append(Alter(self.node_id, self.epoch, change))

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.known and self.known[broker_id].is_alive

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return self.is_alive(broker_id) and broker_epoch in (-1, self.known[broker_id].epoch)

    # --- life

    def come_back(self, epoch: int, keeps: int) -> None:
        """Start with the first `keeps` records, and all of the metadata: what it says now, not what it said before."""
        self.log.truncate_to(keeps)
        self.log.load_again()
        self.log.high_watermark = min(self.checkpoint, keeps)
        self.is_up, self.epoch, self.applied, self.known = True, epoch, 0, {}
        self.partition = self._new_partition()
        for record in self.cluster.metadata:
            if not isinstance(record, PartitionRecord):
                self.known[record[0]] = record[1]
        self.applied = len(self.cluster.metadata)
        latest = [record for record in self.cluster.metadata if isinstance(record, PartitionRecord)][-1]
        self.partition.apply(latest, self.log, self.cluster.now_s)

    def disk_is_well_again(self) -> None:
        """Load the log again, as after an error of its disk, and take it up as `Replicas.on_return` does."""
        known = [record for record in self.cluster.metadata[: self.applied] if isinstance(record, PartitionRecord)][-1]
        self.log.load_again()
        if self.partition.log is not None:
            self.partition.go_offline()
        self.partition.apply(known, self.log, self.cluster.now_s)

    def learn(self) -> None:
        """Apply the next record of the metadata."""
        record = self.cluster.metadata[self.applied]
        self.applied += 1
        if isinstance(record, PartitionRecord):
            self.partition.apply(record, self.log, self.cluster.now_s)
        else:
            broker_id, registered = record
            self.known[broker_id] = registered

    # --- follower

    def fetch(self) -> None:
        partition, log = self.partition, self.log
        if partition.state is ReplicaState.FOLLOWER and partition.leader_id != NO_LEADER:
            self.fetches += 1
            latest = log.epochs.latest
            last_epoch = -1 if latest is None else latest.epoch
            self.cluster.messages.append(
                Fetch(
                    self.node_id,
                    self.epoch,
                    self.fetches,
                    partition.leader_id,
                    partition.leader_epoch,
                    log.log_end_offset,
                    last_epoch,
                )
            )

    def take(self, answer: Fetched) -> None:
        partition, log, asked = self.partition, self.log, answer.asked
        is_current = asked.broker_epoch == self.epoch and asked.number == self.fetches and asked.offset == log.log_end_offset
        if not is_current or partition.state is not ReplicaState.FOLLOWER or partition.leader_epoch != asked.leader_epoch:
            return
        if answer.parted is not None:
            log.truncate_to(truncation_by_epoch(log, *answer.parted).offset)
            return
        for epoch, value in answer.records:
            log.append(epoch, value)
        log.update_high_watermark(max(answer.high_watermark, log.high_watermark))

    # --- leader

    def answer(self, fetch: Fetch, at_most: int) -> Fetched | None:
        partition, log = self.partition, self.log
        if partition.refusal(fetch.leader_epoch) or fetch.follower not in partition.followers:
            return None
        known = self.known.get(fetch.follower)
        if known is not None and known.is_alive and known.epoch > fetch.broker_epoch:
            return None
        if fetch.last_epoch >= 0:
            end = log.end_offset_for_epoch(fetch.last_epoch)
            assert end is not None
            if end[0] < fetch.last_epoch or end[1] < fetch.offset:
                return Fetched(fetch, end, (), log.high_watermark)
        assert fetch.offset <= log.log_end_offset
        place = LogOffsetMetadata(fetch.offset, 0, fetch.offset)
        records = tuple(log.records[fetch.offset : fetch.offset + at_most])
        partition.follower_fetched(fetch.follower, fetch.broker_epoch, place, 0, log.log_end_offset, self.cluster.now_s)
        return Fetched(fetch, None, records, log.high_watermark)


class SimulatedCluster:
    """Brokers 1 to `count`, all in sync with broker 1 at first, and what the controller has decided."""

    def __init__(self, count: int, min_insync_replicas: int) -> None:
        self.settings = Settings(min_insync_replicas)
        self.now_s = 0.0
        self.messages: list[Message] = []
        self.metadata: list[PartitionRecord | tuple[int, Registered]] = []
        self.registered: dict[int, Registered] = {}
        self.replicas = list(range(1, count + 1))
        self.leader, self.leader_epoch, self.partition_epoch, self.isr = 1, 0, 0, list(self.replicas)
        self.epochs = 100
        self.values = 0
        self._write_partition()
        self.brokers = {node_id: Broker(node_id, self) for node_id in self.replicas}
        for node_id in self.replicas:
            self._register(node_id)
        for broker in self.brokers.values():
            broker.come_back(self.registered[broker.node_id].epoch, 0)

    # --- the controller

    def _write_partition(self) -> None:
        self.metadata.append(
            PartitionRecord(
                0,
                replicas=list(self.replicas),
                isr=list(self.isr),
                leader=self.leader,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
            )
        )

    def _change(self, isr: list[int], leader: int) -> None:
        self.leader_epoch += leader != self.leader
        self.isr, self.leader = isr, leader
        self.partition_epoch += 1
        self._write_partition()

    def _register(self, broker_id: int) -> None:
        self.epochs += 1
        self._note(broker_id, Registered(self.epochs, True))

    def _note(self, broker_id: int, registered: Registered) -> None:
        self.registered[broker_id] = registered
        self.metadata.append((broker_id, registered))

    def fence(self, broker_id: int) -> None:
        """The controller does not hear of a broker."""
        registered = self.registered[broker_id]
        if not registered.is_alive:
            return
        self._note(broker_id, registered._replace(is_alive=False))
        if broker_id in self.isr:
            isr = [one for one in self.isr if one != broker_id] or [broker_id]
            leader = self.leader
            if leader == broker_id:
                leader = next((one for one in isr if self.registered[one].is_alive), NO_LEADER)
            self._change(isr, leader)

    def unfence(self, broker_id: int) -> None:
        """It hears of it again."""
        if not self.registered[broker_id].is_alive:
            self._note(broker_id, self.registered[broker_id]._replace(is_alive=True))
        if self.leader == NO_LEADER and broker_id in self.isr:
            self._change(self.isr, broker_id)

    def elect(self, broker_id: int) -> None:
        if broker_id in self.isr and self.registered[broker_id].is_alive and broker_id != self.leader:
            self._change(self.isr, broker_id)

    def alter(self, asked: Alter) -> CommittedIsr | ErrorCode | None:
        change = asked.change
        if self.registered[asked.leader].epoch != asked.broker_epoch:
            return None
        if change.leader_epoch != self.leader_epoch or self.leader != asked.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        if change.partition_epoch != self.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for broker_id, epoch in change.isr:
            registered = self.registered[broker_id]
            if not registered.is_alive or (broker_id != asked.leader and epoch not in (-1, registered.epoch)):
                return ErrorCode.INELIGIBLE_REPLICA
        self._change([broker_id for broker_id, _ in change.isr], self.leader)
        return CommittedIsr(self.leader_epoch, self.partition_epoch, tuple(self.isr))

    # --- brokers

    def stop(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        broker.is_up = False
        broker.checkpoint = min(broker.checkpoint, broker.log.log_end_offset)

    def restart(self, broker_id: int, keeps: int) -> None:
        """A broker that is down comes back, with `keeps` records if it may have lost some."""
        broker = self.brokers[broker_id]
        end = broker.log.log_end_offset
        if self.isr == [broker_id]:
            keeps = end
        self.fence(broker_id)
        self._register(broker_id)
        broker.come_back(self.epochs, min(max(keeps, broker.log.flushed_to), end))
        self.unfence(broker_id)

    def produce(self, broker_id: int, count: int) -> None:
        broker = self.brokers[broker_id]
        if broker.is_up and broker.partition.is_leader:
            for _ in range(count):
                self.values += 1
                broker.log.append(broker.partition.leader_epoch, self.values)
            broker.partition.advance(self.now_s)

    def deliver(self, number: int, at_most: int = 100) -> None:
        """Let a message arrive; one for a broker that is down, or was, is lost."""
        message = self.messages.pop(number)
        if isinstance(message, Fetch):
            leader = self.brokers[message.leader]
            answer = leader.answer(message, at_most) if leader.is_up else None
            if answer is not None:
                self.messages.append(answer)
        elif isinstance(message, Fetched):
            if self.brokers[message.asked.follower].is_up:
                self.brokers[message.asked.follower].take(message)
        elif isinstance(message, Alter):
            decided = self.alter(message)
            if decided is not None:
                self.messages.append(Altered(message, decided))
        else:
            leader = self.brokers[message.asked.leader]
            if leader.is_up and leader.epoch == message.asked.broker_epoch:
                leader.partition.isr_answered(message.asked.change, message.answer, self.now_s)

    def lose(self, number: int) -> None:
        """Let a message be lost; a proposal, or its answer, is one that the leader's broker sends until it has an answer."""
        message = self.messages.pop(number)
        if isinstance(message, Altered):
            message = message.asked
        if isinstance(message, Alter):
            leader = self.brokers[message.leader]
            if leader.is_up and leader.epoch == message.broker_epoch and leader.partition.pending is message.change:
                self.messages.append(message)

    def heal(self) -> None:
        """Let everything work for a while."""
        for broker_id, broker in self.brokers.items():
            if not broker.is_up:
                self.restart(broker_id, broker.log.log_end_offset)
            self.unfence(broker_id)
        for _ in range(4 * len(self.replicas)):
            self.now_s += MAX_LAG_S / 3
            for broker in self.brokers.values():
                while broker.applied < len(self.metadata):
                    broker.learn()
                broker.fetch()
            while self.messages:
                self.deliver(0)
            for broker in self.brokers.values():
                broker.partition.maybe_shrink(self.now_s)
