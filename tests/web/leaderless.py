"""A broker with a topic `t` of two partitions, of which the second one has no leader at first."""

from __future__ import annotations

from typing import Any

from tests.client.scripted import ScriptedBroker, metadata
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest

RECORDS = 10
"""Each partition's number of records."""

FIRST_MS = 1_795_046_400_000

ANSWERS = {EARLIEST: (-1, 0), LATEST: (-1, RECORDS), MAX_TIMESTAMP: (FIRST_MS + RECORDS - 1, RECORDS - 1)}


class Leaderless(ScriptedBroker):
    """The broker. `leaders` are its partitions' leaders, -1 for none; its node is 1."""

    def __init__(self) -> None:
        self.leaders = {0: 1, 1: -1}
        super().__init__(self._answer)

    def _answer(self, request: Any, version: int) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata({1: self}, self.leaders)
        return offsets(request) if isinstance(request, ListOffsetsRequest) else None


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        found = []
        for one in topic.partitions:
            time, offset = ANSWERS.get(one.timestamp, (FIRST_MS, 0))
            found.append(ListOffsetsPartitionResponse(partition_index=one.partition_index, timestamp=time, offset=offset))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
    return ListOffsetsResponse(topics=topics)
