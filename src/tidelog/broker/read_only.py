"""The APIs of a read-only broker. Requests that would change something are refused, with error codes that clients do not retry.

| request | answer |
|---|---|
| Produce | TOPIC_AUTHORIZATION_FAILED |
| InitProducerId of an idempotent producer; CreateTopics, AlterConfigs, IncrementalAlterConfigs | CLUSTER_AUTHORIZATION_FAILED |
| AlterClientQuotas, AlterUserScramCredentials, CreateAcls, DeleteAcls | CLUSTER_AUTHORIZATION_FAILED |
| DeleteTopics, CreatePartitions, DeleteRecords | TOPIC_AUTHORIZATION_FAILED |
| InitProducerId of a transactional producer, AddOffsetsToTxn, EndTxn | TRANSACTIONAL_ID_AUTHORIZATION_FAILED |
| OffsetCommit, OffsetDelete, DeleteGroups | GROUP_AUTHORIZATION_FAILED |
| AddPartitionsToTxn, TxnOffsetCommit, WriteTxnMarkers | not served: no transaction can begin or end |

All other requests are answered as usual, from the state of the folder at startup (`storage.folder.read_only_view`). Clients can
join groups, but groups are not stored. Offset commits are refused, so consumers must set `enable.auto.commit=false`.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api, Handler
from tidelog.broker.node import Node
from tidelog.broker.peers.forwarded_apis import FORWARDED
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES
from tidelog.wire.messages import delete_groups, delete_records, offset_commit, produce
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

WHY = "this broker is read-only"

READ_ONLY_SETTINGS: dict[str, Any] = {
    "auto_create_topics_enable": False,
    "offsets_retention_check_interval_ms": 2**62,
    "is_read_only": True,
}
"""Settings of `BrokerConfig` that keep the broker from changing the folder."""

_TOPIC, _GROUP, _CLUSTER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _produce(node: Node, message: produce.ProduceRequest, request: Request) -> Message | Outcome:
    if message.acks == 0:
        return Outcome.CLOSE
    return produce.ProduceResponse(
        [
            produce.TopicProduceResponse(
                topic.name,
                NO_TOPIC_ID,
                [produce.PartitionProduceResponse(one.index, _TOPIC, -1, error_message=WHY) for one in topic.partition_data],
            )
            for topic in message.topic_data
        ]
    )


def _init_producer_id(node: Node, message: InitProducerIdRequest, request: Request) -> Message:
    code = _CLUSTER if message.transactional_id is None else _TRANSACTION
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _delete_records(node: Node, message: delete_records.DeleteRecordsRequest, request: Request) -> Message:
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    delete_records.DeleteRecordsPartitionResult(
                        partition_index=one.partition_index, low_watermark=-1, error_code=_TOPIC
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _alter_configs(node: Node, message: Any, request: Request) -> Message:
    """Refuse AlterConfigs or IncrementalAlterConfigs."""
    return _response_to(
        message,
        responses=[
            AlterConfigsResourceResponse(
                error_code=_CLUSTER, error_message=WHY, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in message.resources
        ],
    )


def _offset_commit(node: Node, message: offset_commit.OffsetCommitRequest, request: Request) -> Message:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=_GROUP)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _delete_groups(node: Node, message: delete_groups.DeleteGroupsRequest, request: Request) -> Message:
    return delete_groups.DeleteGroupsResponse(
        results=[
            delete_groups.DeletableGroupResult(group_id=name, error_code=_GROUP, error_message=WHY)
            for name in message.groups_names
        ]
    )


def _refusing(name: str, code: ErrorCode) -> Handler:
    """Return a handler that refuses requests as a cluster member does if no controller answers, but with this code."""
    refuse = next(one.refuse for one in FORWARDED.values() if one.name == name)
    assert refuse is not None
    return lambda node, message, request: refuse(message, code, WHY)


def _at_top(code: ErrorCode) -> Handler:
    return lambda node, message, request: _response_to(message, error_code=code)


def _response_to(message: Message, **fields: Any) -> Message:
    response: Any = RESPONSES[message.API_KEY]
    refusal: Message = response(**fields)
    return refusal


_REFUSED: dict[str, Handler] = {
    "AlterClientQuotas": _refusing("AlterClientQuotas", _CLUSTER),
    "AlterUserScramCredentials": _refusing("AlterUserScramCredentials", _CLUSTER),
    "Produce": _produce,
    "InitProducerId": _init_producer_id,
    "CreateTopics": _refusing("CreateTopics", _CLUSTER),
    "DeleteTopics": _refusing("DeleteTopics", _TOPIC),
    "CreatePartitions": _refusing("CreatePartitions", _TOPIC),
    "DeleteRecords": _delete_records,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _alter_configs,
    "OffsetCommit": _offset_commit,
    "OffsetDelete": _at_top(_GROUP),
    "DeleteGroups": _delete_groups,
    "AddOffsetsToTxn": _at_top(_TRANSACTION),
    "EndTxn": _at_top(_TRANSACTION),
    "CreateAcls": _refusing("CreateAcls", _CLUSTER),
    "DeleteAcls": _refusing("DeleteAcls", _CLUSTER),
}

_NOT_SERVED = {"AddPartitionsToTxn", "TxnOffsetCommit", "WriteTxnMarkers"}

READ_ONLY_APIS: tuple[Api, ...] = tuple(
    api._replace(handle=_REFUSED[api.name], answer_usual=None) if api.name in _REFUSED else api
    for api in APIS
    if api.name not in _NOT_SERVED
)
"""The table of APIs, with handlers that refuse changes."""
