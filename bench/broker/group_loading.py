"""A case of `bench.group_bench`: a broker starts with many groups, until the committed offsets of all can be fetched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kafka.java import wait_until

from bench.broker.cases import Measure, Run, new_topic
from bench.broker.clients import TIMEOUT_S, raw
from bench.broker.group_cases import COMMIT, FETCH, FIND, GROUP
from bench.broker.peers import Peer
from bench.broker.requests import frame
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

OFFSET = 777
NO_GENERATION = -1


def loading(groups: int, partitions: int) -> object:
    """Seconds from the start of the broker's process, after a clean stop. The processor time is that of the process."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, partitions)
        names = [f"{topic}-{number}" for number in range(groups)]

        def has_offsets(group: str) -> bool:
            asked = [OffsetFetchRequestTopic(topic, partition_indexes=list(range(partitions)))]
            try:
                answer = peer.ask(OffsetFetchRequest(group_id=group, topics=asked), FETCH, OffsetFetchResponse)
            except OSError:
                return False
            offsets = [one.committed_offset for told in answer.topics for one in told.partitions]
            return answer.error_code == ErrorCode.NONE and offsets == [OFFSET] * partitions

        committed = [OffsetCommitRequestPartition(number, OFFSET, committed_metadata="") for number in range(partitions)]
        to = [OffsetCommitRequestTopic(topic, partitions=committed)]
        frames = [frame(OffsetCommitRequest(group, NO_GENERATION, "", topics=to), COMMIT) for group in names]

        def are_committed() -> bool:
            if peer.ask(FindCoordinatorRequest(names[0], GROUP), FIND, FindCoordinatorResponse).error_code:
                return False
            raw(peer.port, [b"".join(frames)], depth=5, count=groups)
            return all(map(has_offsets, names))

        wait_until(are_committed, "the commits to be there", TIMEOUT_S)

        def run() -> Measure:
            peer.process.stop()
            began = time.monotonic()
            peer.process.start()
            for group in names:
                while not has_offsets(group):
                    time.sleep(0.005)
            return Measure(time.monotonic() - began, peer.cpu_seconds())

        yield run
        peer.delete_topic(topic)

    return prepare
