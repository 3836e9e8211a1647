"""Creates and connects the controller's parts. A controller is a node without partitions: its brokers have them."""

from __future__ import annotations

import logging
from typing import Any

from tidelog.broker.controller.controlled_topics import ControlledTopics
from tidelog.broker.controller.metadata_reads import MetadataReads, Observers
from tidelog.broker.controller.registrations import BROKERS, Registrations
from tidelog.broker.dispatch.dispatcher import Dispatcher
from tidelog.broker.node import Node
from tidelog.broker.topics.topic_changes import Job
from tidelog.storage.steps import Steps
from tidelog.wire.messages.describe_quorum import ReplicaState

logger = logging.getLogger("tidelog.broker")


class ControllerNode(Node):
    """The node of a controller. The handlers of its APIs get this object. Use only on the event loop's thread."""

    dispatcher: Dispatcher
    """Answers forwarded requests; set once the server exists."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        store = self.manager.metadata
        self.reads = MetadataReads(store)
        self.observers = Observers()
        self.registrations = Registrations(store, self.timers, self._run)
        self.topics = ControlledTopics(self, self.registrations)

    def has_settings_of(self, broker_id: int) -> bool:
        """Whether the broker is one of the controlled brokers."""
        return broker_id in self.registrations.expected

    def quorum_observers(self) -> list[ReplicaState]:
        return self.observers.states(self.clock.now_ms())

    def fence(self, broker_id: int) -> None:
        """Fence a broker whose process has ended."""
        self._run(self.registrations.fencing(broker_id))

    def _run(self, steps: Steps[None]) -> None:
        def over(result: object) -> None:
            if isinstance(result, BaseException):
                logger.error("cannot write the change to a broker's registration: %s", result)

        self.topic_changes.begin(Job(BROKERS, steps), over)
