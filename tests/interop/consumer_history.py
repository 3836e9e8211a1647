"""Random histories of a consumer group over the wire: what a broker answers, step by step."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from random import Random
from typing import Self

from tests.broker.consumer_groups.histories import Client, Partition
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.consumer_groups.consumer_group import JOINING, LEAVING, LEAVING_FOR_NOW
from tidelog.broker.coordinators.consumer_groups.heartbeats import Heartbeat
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest

Told = list[tuple[object, ...]]


class WireGroup:
    """A group of a broker. `ids` are its topics' ids by name."""

    def __init__(self, address: tuple[str, int], group: str, ids: Mapping[str, uuid.UUID], version: int = 1) -> None:
        self.client = RawClient(address, client_id="raw")
        self.group = group
        self.names = {topic_id: name for name, topic_id in ids.items()}
        self.version = version

    def __enter__(self) -> Self:
        # The first request for a coordinator creates its topic.
        wait_until(self.has_coordinator, "the group's coordinator", PATIENCE_S)
        return self

    def __exit__(self, *_raised: object) -> None:
        self.client.close()

    def has_coordinator(self) -> bool:
        """Whether the broker coordinates the group now."""
        self.client.ask(FindCoordinatorRequest(key=self.group), 1)
        return self.described()[0] in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)

    def ask(self, beat: Heartbeat) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat."""
        owned = None if beat.owned is None else [HeartbeatTopicPartitions(one, sorted(held)) for one, held in beat.owned]
        request = ConsumerGroupHeartbeatRequest(
            self.group,
            beat.member_id,
            beat.member_epoch,
            beat.instance_id,
            beat.rack_id,
            beat.rebalance_timeout_ms,
            None if beat.names is None else list(beat.names),
            None,
            beat.server_assignor,
            owned,
        )
        response: ConsumerGroupHeartbeatResponse = self.client.ask(request, self.version)
        return response

    def described(self) -> tuple[object, ...]:
        """Return what the broker says of the group, with its topics' names."""
        (group,) = self.client.ask(ConsumerGroupDescribeRequest([self.group]), 0).groups
        members = sorted(
            (
                one.member_id,
                one.instance_id,
                one.member_epoch,
                tuple(sorted(one.subscribed_topic_names)),
                tuple(sorted((each.topic_name, tuple(sorted(each.partitions))) for each in one.assignment.topic_partitions)),
                tuple(
                    sorted((each.topic_name, tuple(sorted(each.partitions))) for each in one.target_assignment.topic_partitions)
                ),
            )
            for one in group.members
        )
        return group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name, *members


class WireClient(Client):
    """A member that sends its heartbeats to a broker, and notes the answers."""

    def __init__(self, rng: Random, number: int, names: tuple[str, ...], instance_id: str | None, assignor: str) -> None:
        super().__init__(rng, number, names, None, instance_id)
        self.assignor = assignor

    def send(self, group: WireGroup, told: Told, *, epoch: int | None = None, is_lost: bool = False) -> None:
        """Send a heartbeat, or leave (`epoch`)."""
        beat = self.request()
        answer = group.ask(beat if epoch is None else beat._replace(member_epoch=epoch))
        code = ErrorCode(answer.error_code)
        assigned: set[Partition] | None = None
        if answer.assignment is not None:
            assigned = {(one.topic_id, partition) for one in answer.assignment.topic_partitions for partition in one.partitions}
        shown = None if assigned is None else sorted((group.names[topic_id], partition) for topic_id, partition in assigned)
        told.append((self.member_id, epoch, code.name, answer.member_epoch, shown))
        if code is ErrorCode.NONE and epoch is None and not is_lost:
            self.epoch, self.reports = answer.member_epoch, False
            if assigned is not None:
                self.wanted = assigned
                if self.has <= assigned:
                    self.has, self.reports = set(assigned), True
        elif code is ErrorCode.NONE:
            self.reports = True
        elif code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            stays = self.epoch == JOINING
            self.rejoin()
            if stays:
                self.restart()


class History:
    """Clients that do something at random. Nobody's session ends, and no topic changes."""

    def __init__(self, seed: int, topics: tuple[str, ...], assignor: str = "range") -> None:
        self.rng = Random(seed)
        self.topics = topics
        self.assignor = assignor
        self.clients: list[WireClient] = []
        self.joined = 0

    def subscription(self) -> tuple[str, ...]:
        """Return some topics."""
        return tuple(sorted(self.rng.sample(self.topics, self.rng.randrange(1, len(self.topics) + 1))))

    def run(self, group: WireGroup, steps: int) -> Told:
        """Take some steps, and return what the broker answered."""
        told: Told = []
        for _ in range(steps):
            self.step(group, told)
            told.append(group.described())
        return told

    def step(self, group: WireGroup, told: Told) -> None:
        """Let a client do something."""
        rng = self.rng
        what = rng.randrange(16)
        if not self.clients or what == 0:
            self.joined += 1
            instance_id = f"i{self.joined}" if rng.randrange(3) == 0 else None
            self.clients.append(WireClient(rng, self.joined, self.subscription(), instance_id, self.assignor))
            return
        client = rng.choice(self.clients)
        if what == 1 and client.epoch != JOINING:
            epoch = LEAVING_FOR_NOW if client.instance_id is not None and rng.randrange(2) else LEAVING
            client.send(group, told, epoch=epoch)
            if epoch == LEAVING:
                self.clients.remove(client)
            else:
                client.restart()
        elif what == 2:
            client.names = self.subscription()
            client.reports = True
        elif what < 6:
            client.revoke()
        else:
            client.send(group, told, is_lost=rng.randrange(8) == 0)
