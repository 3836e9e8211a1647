"""InitProducerId (22): assigns a producer id and epoch to an idempotent or transactional producer (KIP-98).

An idempotent producer gets a new id with epoch 0 each time, even if it had one. A transactional producer gets the id and epoch
described in `coordinators.transactions.transaction`, which fences other producers with the same transactional id.
"""

from __future__ import annotations

import logging

from tidelog.broker.coordinators.transactions.producer_id_source import ClusterProducerIds
from tidelog.broker.coordinators.transactions.transaction import ProducerIdAndEpoch
from tidelog.broker.handling.access import Access, Asker
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_transactions
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request, Wide
from tidelog.broker.requests.slices import Work, awaited
from tidelog.broker.topics.topic_changes import Job
from tidelog.errors import StorageError, TidelogError
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("tidelog.broker")

_NO_ID = -1
_NO_EPOCH = -1
_FIRST_TOLD_OF_FENCING = 4

IDS_OF_A_REQUEST = 2
"""The most producer ids that one request uses: one for a new transactional id, and one more if that producer id has no epochs
left.
"""

NO_TOPIC = " producer ids"
"""The job name under which id reservations run one at a time. It is not a valid topic name."""


def _gate(asker: Asker, message: InitProducerIdRequest) -> InitProducerIdResponse | None:
    kind = ResourceType.TRANSACTIONAL_ID
    if message.transactional_id is not None:
        is_allowed = asker.may(Operation.WRITE, kind, message.transactional_id)
    else:
        kind = ResourceType.CLUSTER
        is_allowed = asker.may_cluster(Operation.IDEMPOTENT_WRITE, log_denied=False) or asker.may_any(
            Operation.WRITE, ResourceType.TOPIC
        )
    return None if is_allowed else _refused(asker.code(kind))


ACCESS = Access(
    "WRITE on the TRANSACTIONAL_ID; without one IDEMPOTENT_WRITE on CLUSTER, or WRITE on any TOPIC",
    _gate,
)


def handle(node: Node, message: InitProducerIdRequest, request: Request) -> Message | Wide | Outcome | Work:
    """Return a producer id and epoch, or an error. If a new block of ids is needed, the response waits until the block is on
    disk, or the controller has assigned it.
    """
    if node.producer_ids.has(IDS_OF_A_REQUEST):
        return _answer(node, message, request)
    return _reserved_first(node, message, request)


def _reserved_first(node: Node, message: InitProducerIdRequest, request: Request) -> Work:
    ids = node.producer_ids
    try:
        while not ids.has(IDS_OF_A_REQUEST):  # Other requests may have used the whole block.
            if isinstance(ids, ClusterProducerIds):
                yield from awaited(ids.reserve())
            else:
                yield from node.topic_changes.side_by_side([Job(NO_TOPIC, ids.reserving(IDS_OF_A_REQUEST))])
    except TidelogError as error:
        logger.error("cannot assign a producer id to client %s: %s", request.client_id, error)
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _answer(node, message, request)


def _answer(node: Node, message: InitProducerIdRequest, request: Request) -> InitProducerIdResponse:
    if (message.producer_id == _NO_ID) != (message.producer_epoch == _NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is None:
        try:
            return InitProducerIdResponse(producer_id=node.producer_ids.next_id(), producer_epoch=0)
        except StorageError as error:
            logger.error("cannot assign a producer id to client %s: %s", request.client_id, error)
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    expected = None if message.producer_id == _NO_ID else ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    code, given = node.transactions.init_producer_id(message.transactional_id, message.transaction_timeout_ms, expected)
    if code is ErrorCode.PRODUCER_FENCED and request.api_version < _FIRST_TOLD_OF_FENCING:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=given.producer_id, producer_epoch=given.epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NO_ID, producer_epoch=_NO_EPOCH)


API = Api(InitProducerIdRequest, InitProducerIdResponse, Versions(0, 5), ACCESS, by_transactions(handle))
