"""Proposals of in-sync replicas that a controller does not take: sent again for as long as it takes, and logged once."""

from __future__ import annotations

import asyncio
import logging
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.replicas import isr_changes
from tidelog.broker.replicas.isr_changes import IsrChanges
from tidelog.broker.replicas.partition import IsrChange
from tidelog.errors import UnsupportedVersionError
from tidelog.model import TopicPartition
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResult,
    TopicDataResult,
)

REFUSALS = 100
TOPIC_ID = uuid.UUID(int=7)


class Plane:
    """A controller that is older than inter.broker.protocol.version, and is upgraded in the end."""

    node_id = 1
    broker_epoch = 5

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.calls += 1
        if self.calls <= REFUSALS:
            raise UnsupportedVersionError("inter.broker.protocol.version=3.9 is newer than the controller")
        return AlterPartitionResponse(topics=[TopicDataResult("t", TOPIC_ID, [PartitionDataResult(0, isr=[1])])])


def test_an_older_controller(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_S", 0)
    caplog.set_level(logging.INFO, "tidelog.broker")
    change = IsrChange(TopicPartition("t", 0), leader_epoch=0, partition_epoch=0, isr=((1, 5),), added=None)
    partition: Any = SimpleNamespace(pending=change, isr_answered=lambda change, answer, now: True)
    plane: Any = Plane()

    async def proposed() -> None:
        done = asyncio.Event()
        changes = IsrChanges(plane, lambda partition: done.set())
        changes.propose(partition, change, TOPIC_ID)
        await done.wait()
        await changes.stop()

    asyncio.run(proposed())
    assert plane.calls == REFUSALS + 1
    assert [record.getMessage() for record in caplog.records if "controller" in record.message] == [
        "the controller has not changed the in-sync replicas, retrying: "
        "inter.broker.protocol.version=3.9 is newer than the controller",
        "the controller accepts changes of in-sync replicas again",
    ]
