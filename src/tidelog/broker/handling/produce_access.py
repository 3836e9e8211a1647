"""The access check of Produce: the client must be authorized for each topic and, if it sends transactional records, for the
transactional id. Records count as transactional if their first batch is transactional.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidelog.broker.handling.access import Access, Amend, Asker, refusals
from tidelog.broker.requests.request import Outcome
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT
from tidelog.records.compression import Bytes
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_V2: Final = 2
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22


def _is_transactional(records: Bytes | None) -> bool:
    if records is None or len(records) <= HEADER_BYTES:
        return False
    return records[_MAGIC] == _V2 and bool(records[_ATTRIBUTES] & TRANSACTIONAL_BIT)


def _gate(asker: Asker, message: ProduceRequest) -> ProduceResponse | Outcome | Amend | None:
    topics = message.topic_data
    kind = ResourceType.TRANSACTIONAL_ID
    if any(_is_transactional(one.records) for topic in topics for one in topic.partition_data) and (
        message.transactional_id is None or not asker.may(Operation.WRITE, kind, message.transactional_id)
    ):
        return Outcome.CLOSE if message.acks == 0 else ProduceResponse([_refused(topic, asker.code(kind)) for topic in topics])
    kind = ResourceType.TOPIC
    denied = refusals(asker, Operation.WRITE, kind, Counter(topic.name for topic in topics))
    if not denied:
        return None
    answers = [_refused(topic, asker.code(kind)) for topic in topics if topic.name in denied]
    message.topic_data = left = [topic for topic in topics if topic.name not in denied]
    if not left:
        return Outcome.CLOSE if message.acks == 0 else ProduceResponse(answers)

    def amend(answer: ProduceResponse | Outcome) -> ProduceResponse | Outcome:
        if isinstance(answer, Outcome):
            return Outcome.CLOSE  # With acks=0 a closed connection is all that the producer can notice.
        answer.responses.extend(answers)
        return answer

    return amend


def _refused(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    return TopicProduceResponse(
        topic.name, NO_TOPIC_ID, [PartitionProduceResponse(one.index, code, -1) for one in topic.partition_data]
    )


PRODUCE_ACCESS = Access("WRITE on each TOPIC; for transactional records also WRITE on the TRANSACTIONAL_ID", _gate)
