"""ISR changes before KIP-497: the leader writes the partition's znode itself and notifies the controller.

| | |
|---|---|
| ``/brokers/topics/<topic>/partitions/<number>/state`` | written only if its version is the known partition epoch |
| ``/isr_change_notification/isr_change_<number>`` | names the changed partitions; the controller informs brokers and removes it |

If the response to a write was lost, the write is recognized by the znode's content. If another writer changed the znode, the
error is INVALID_UPDATE_VERSION, and the controller's next LeaderAndIsr has the current state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from tidelog.broker.cluster.zookeeper.session import Session
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResult,
    TopicDataResult,
)

logger = logging.getLogger("tidelog.broker")

NOTIFICATIONS = "/isr_change_notification/isr_change_"


class IsrZnodes:
    """Answers AlterPartition like a controller, by writing znodes. `controller_epoch` returns the controller epoch of the last
    LeaderAndIsr for a partition.
    """

    def __init__(self, session: Session, node_id: int, controller_epoch: Callable[[TopicPartition], int]) -> None:
        self._session = session
        self._node_id = node_id
        self._controller_epoch = controller_epoch

    async def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Make the requested changes. Raises BrokerUnreachableError; it is then unknown whether they were made."""
        topics, changed = [], []
        for topic in request.topics:
            results = []
            for one in topic.partitions:
                key = TopicPartition(topic.topic_name, one.partition_index)
                version = await self._write(key, one)
                if version is None:
                    results.append(PartitionDataResult(one.partition_index, ErrorCode.INVALID_UPDATE_VERSION))
                    continue
                changed.append(key)
                results.append(
                    PartitionDataResult(
                        one.partition_index,
                        leader_id=self._node_id,
                        leader_epoch=one.leader_epoch,
                        isr=list(one.new_isr),
                        partition_epoch=version,
                    )
                )
            topics.append(TopicDataResult(topic.topic_name, topic.topic_id, results))
        if changed:
            note = {"version": 1, "partitions": [{"topic": key.topic, "partition": key.partition} for key in changed]}
            await self._session.create(NOTIFICATIONS, json.dumps(note).encode(), is_sequence=True)
        return AlterPartitionResponse(topics=topics)

    async def _write(self, key: TopicPartition, wanted: PartitionData) -> int | None:
        path = f"/brokers/topics/{key.topic}/partitions/{key.partition}/state"
        state: dict[str, Any] = {
            "controller_epoch": self._controller_epoch(key),
            "leader": self._node_id,
            "version": 1,
            "leader_epoch": wanted.leader_epoch,
            "isr": list(wanted.new_isr),
        }
        version = await self._session.set(path, json.dumps(state).encode(), wanted.partition_epoch)
        if version is not None:
            return version
        found = await self._session.get(path)
        if found is not None and found.version == wanted.partition_epoch + 1 and _is(found.data, state):
            return found.version
        logger.info("%s-%d: its znode was changed by another writer; waiting for the controller", *key)
        return None


def _is(data: bytes, state: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(data) == state)
    except ValueError:
        return False
