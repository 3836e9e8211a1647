"""Consumer groups without a broker: topics, a coordinator's memory and log, and clients that follow KIP-848."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from random import Random

from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    Assignment,
    Change,
    ConsumerGroup,
    RefusedError,
    TopicFacts,
)
from tidelog.broker.coordinators.consumer_groups.heartbeats import Heartbeat, Result, heartbeat, leave, plan_of, removed
from tidelog.broker.coordinators.consumer_groups.target_assignment import renamed, target_changes
from tidelog.broker.coordinators.groups.topic_patterns import matching
from tidelog.groups.modern_groups import ModernRecords
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode

GROUP = "group"
Partition = tuple[uuid.UUID, int]


def partitions_of(assignment: Assignment) -> set[Partition]:
    """Return an assignment's partitions."""
    return {(topic_id, partition) for topic_id, held in assignment.items() for partition in held}


class Topics:
    """The topics of a broker: `heartbeats.Surroundings`."""

    def __init__(self, rng: Random, *, max_size: int = 1000, large: int = 10**9) -> None:
        self.max_size = max_size
        self.assignors: tuple[str, ...] = ("uniform", "range")
        self.topics: dict[str, TopicFacts] = {}
        self.topics_seen: object = 0
        self.large = large
        self._rng = rng

    def set(self, name: str, partitions: int) -> None:
        """Create a topic, enlarge it, or delete it (0)."""
        before = self.topics.pop(name, None)
        if partitions:
            topic_id = uuid.UUID(int=self._rng.getrandbits(128)) if before is None else before.topic_id
            self.topics[name] = TopicFacts(topic_id, partitions)
        self.topics_seen = object()

    def facts(self, name: str) -> TopicFacts | None:
        return self.topics.get(name)

    def matching(self, regex: str) -> frozenset[str]:
        return matching(regex, self.topics)

    def is_large(self, members: int, partitions: int) -> bool:
        return members + partitions > self.large


class Coordinator:
    """A group in memory, and its records in a log."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.group = ConsumerGroup(GROUP)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.late: list[tuple[object, object]] = []
        """Assignments that another thread makes."""

    def write(self, changes: Sequence[Change]) -> None:
        """Append changes to the log, and apply them."""
        for key, value in changes:
            written = None if value is None else encode_versioned(value, 0)
            self.log.append((encode_versioned(key, key.VERSIONS[0]), written))
        self.group.apply(changes)

    def beat(self, beat: Heartbeat) -> Result:
        """Answer a heartbeat. Raises RefusedError."""
        if beat.member_epoch in (LEAVING, LEAVING_FOR_NOW):
            result = leave(self.group, beat, self.topics)
        else:
            result = heartbeat(self.group, beat, self.topics)
            self.group.topics_seen = self.topics.topics_seen
        return self.took_over(result)

    def took_over(self, result: Result) -> Result:
        """Write what a request changes, and begin the assignment that it needs."""
        self.write(result.changes)
        if result.needs_assignment and not self.late:
            plan = plan_of(self.group, self.topics)
            self.late.append((plan, plan.run()))
        return result

    def finish_assignment(self) -> None:
        """Take over an assignment that another thread has made."""
        for plan, made in self.late:
            still = renamed(self.group, plan, made)  # type: ignore[arg-type]
            self.write(target_changes(GROUP, self.group.targets, still, plan.epoch))  # type: ignore[attr-defined]
        self.late.clear()

    def end_session(self, member_id: str) -> None:
        """Remove a member whose session has ended."""
        member = self.group.members.get(member_id)
        if member is not None:
            self.write(removed(self.group, [member], self.topics))

    def load(self) -> ConsumerGroup:
        """Return the group as another coordinator loads it from the log."""
        records = ModernRecords()
        for offset, (key, value) in enumerate(self.log):
            records.read(int.from_bytes(key[:2]), key[2:], value, offset)
        group = ConsumerGroup(GROUP)
        _, found = records.consumer_records().get(GROUP, (0, []))
        group.apply(Change(key, value) for key, value in found)
        return group


class Client:
    """A member. It revokes when told to, and reports what it has in the heartbeat after that."""

    def __init__(self, rng: Random, number: int, names: tuple[str, ...], regex: str | None, instance_id: str | None) -> None:
        self.rng = rng
        self.number = number
        self.member_id = f"member-{rng.getrandbits(32):08x}-{number}"
        self.instance_id = instance_id
        self.names = names
        self.regex = regex
        self.assignor = rng.choice([None, None, "uniform", "range"])
        self.epoch = JOINING
        self.has: set[Partition] = set()
        """The partitions that it reads."""
        self.wanted: set[Partition] = set()
        """Its assignment."""
        self.reports = True
        """Whether the next heartbeat lists its partitions and its subscription."""

    def revoke(self) -> None:
        """Give up the partitions that are not in the assignment."""
        if self.has != self.wanted:
            self.has = set(self.wanted)
            self.reports = True

    def request(self) -> Heartbeat:
        """Return the next heartbeat."""
        is_full = self.reports or self.epoch == JOINING
        owned: dict[uuid.UUID, list[int]] = {}
        for topic_id, partition in self.has:
            owned.setdefault(topic_id, []).append(partition)
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if is_full else -1,
            client_id=f"client-{self.number}",
            names=self.names if is_full else None,
            regex=(self.regex or "") if is_full else None,
            server_assignor=self.assignor if is_full else None,
            owned=list(owned.items()) if is_full else None,
        )

    def answered(self, result: Result) -> None:
        """Take over an answer."""
        self.epoch = result.member.epoch
        self.reports = False
        if result.sends_assignment:
            self.wanted = partitions_of(result.member.assigned)
            if self.has <= self.wanted:
                # If it took them later, it might have reported that it has nothing, and the answer might be lost.
                self.has = set(self.wanted)
                self.reports = True

    def beat(self, coordinator: Coordinator, *, is_lost: bool = False) -> None:
        """Send a heartbeat. If its answer is lost, the next one sends everything."""
        try:
            result = coordinator.beat(self.request())
        except RefusedError as error:
            # As in Kafka, not even the same process may join again before its session has ended.
            if error.code is ErrorCode.UNRELEASED_INSTANCE_ID and self.instance_id is not None:
                coordinator.end_session(coordinator.group.static_members[self.instance_id])
            elif error.code not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                raise
            self.rejoin()
            return
        if is_lost:
            self.reports = True
        else:
            self.answered(result)

    def rejoin(self) -> None:
        """Give up everything, and join with the next heartbeat."""
        self.epoch, self.has, self.wanted, self.reports = JOINING, set(), set(), True

    def restart(self) -> None:
        """Become another process."""
        self.member_id = f"member-{self.rng.getrandbits(32):08x}-{self.number}"
        self.rejoin()
