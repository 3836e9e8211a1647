"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer (KIP-98). Versions 0 to 5.

| version | change |
|---|---|
| 0 | transactional id and its timeout; the answer: id and epoch |
| 1 | throttled after the answer |
| 2 | flexible |
| 3 | producers name the id and epoch that they have (KIP-360) |
| 4 | PRODUCER_FENCED in the answer (KIP-588); older clients are told INVALID_PRODUCER_EPOCH |
| 5 | TRANSACTION_ABORTABLE in the answer (KIP-890) |

An idempotent producer gets a new id each time, with epoch 0, whatever it had. One with a transactional id gets what
`transactions.transaction` says, and fences all others that have it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.transactions.transaction import ProducerIdAndEpoch
from tidelog.errors import StorageError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

logger = logging.getLogger("tidelog.broker")

_NO_ID = -1
_NO_EPOCH = -1
_FIRST_TOLD_OF_FENCING = 4


def handle(node: Node, message: InitProducerIdRequest, request: Request) -> InitProducerIdResponse:
    """Hand out an id, or say why not."""
    if (message.producer_id == _NO_ID) != (message.producer_epoch == _NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is None:
        try:
            return InitProducerIdResponse(producer_id=node.manager.next_producer_id(), producer_epoch=0)
        except StorageError as error:
            logger.error("no producer id for %s: %s", request.client_id, error)
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    expected = None if message.producer_id == _NO_ID else ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    code, given = node.transactions.init_producer_id(message.transactional_id, message.transaction_timeout_ms, expected)
    if code is ErrorCode.PRODUCER_FENCED and request.api_version < _FIRST_TOLD_OF_FENCING:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=given.producer_id, producer_epoch=given.epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NO_ID, producer_epoch=_NO_EPOCH)


API = Api(InitProducerIdRequest, InitProducerIdResponse, 0, 5, handle)
