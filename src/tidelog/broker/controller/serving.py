"""Runs a controller: opens its metadata, binds its socket and serves brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import cast

from tidelog.broker.controller.apis import TABLE
from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.node import Node
from tidelog.broker.serving_broker import ServingBroker, running
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import Clock
from tidelog.storage.log_manager import LogManager
from tidelog.storage.steps import run_steps


@asynccontextmanager
async def controlling(
    manager: LogManager, config: BrokerConfig, clock: Clock, brokers: Iterable[int]
) -> AsyncIterator[ServingBroker]:
    """Control `brokers` inside the `with` block. `manager` is started and has the metadata. None of these brokers may be
    running yet.

    The caller must shut the manager down. Raises InvalidArgumentError for an invalid address, StorageError.
    """
    expected = frozenset(brokers)

    async def begin(node: Node) -> None:
        """Begin a controller epoch in which all brokers are fenced: none of them runs before this controller does."""
        store = node.manager.metadata
        store.begin()
        registrations = cast("ControllerNode", node).registrations
        registrations.expected = expected
        for broker_id in registrations.alive():
            run_steps(registrations.fencing(broker_id), store)

    async with running(manager, config, clock, apis=TABLE, before_serving=begin, node_type=ControllerNode) as broker:
        cast("ControllerNode", broker.node).dispatcher = broker.server.dispatcher
        yield broker
