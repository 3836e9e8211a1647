"""InitProducerId (22): an id for an idempotent producer (KIP-98). Versions 0 to 5.

| version | change |
|---|---|
| 0 | transactional id and its timeout; the answer: id and epoch |
| 1 | throttled after the answer |
| 2 | flexible |
| 3 | producers name the id and epoch that they have (KIP-360) |
| 4 | PRODUCER_FENCED in the answer (KIP-588) |
| 5 | TRANSACTION_ABORTABLE in the answer (KIP-890) |

An idempotent producer gets a new id each time, with epoch 0, whatever it had. Transactions have no coordinator here: who asks
with a transactional id is told, as by any broker of Kafka's that does not coordinate it, NOT_COORDINATOR.
"""

from __future__ import annotations

import logging

from tidelog.broker.api import Api, Request
from tidelog.broker.node import Node
from tidelog.errors import StorageError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("tidelog.broker")

_NO_ID = -1
_NO_EPOCH = -1


def handle(node: Node, message: InitProducerIdRequest, request: Request) -> InitProducerIdResponse:
    """Hand out an id, or say why not."""
    if (message.producer_id == _NO_ID) != (message.producer_epoch == _NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        return _refused(ErrorCode.INVALID_REQUEST if not message.transactional_id else ErrorCode.NOT_COORDINATOR)
    try:
        producer_id = node.manager.next_producer_id()
    except StorageError as error:
        logger.error("no producer id for %s: %s", request.client_id, error)
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NO_ID, producer_epoch=_NO_EPOCH)


API = Api(InitProducerIdRequest, InitProducerIdResponse, 0, 5, handle)
