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
from tidelog.wire.messages import alter_configs, delete_groups, delete_records, incremental_alter_configs, offset_commit, produce
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from tidelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from tidelog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from tidelog.wire.messages.create_acls import CreateAclsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest
from tidelog.wire.messages.create_topics import CreateTopicsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.end_txn import EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.offset_delete import OffsetDeleteResponse

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


def _alter_configs(node: Node, message: alter_configs.AlterConfigsRequest, request: Request) -> Message:
    return alter_configs.AlterConfigsResponse(responses=_altered(message.resources))


def _incremental_alter_configs(
    node: Node, message: incremental_alter_configs.IncrementalAlterConfigsRequest, request: Request
) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=_altered(message.resources))


def _altered(resources: list[Any]) -> list[Any]:
    return [
        alter_configs.AlterConfigsResourceResponse(
            error_code=_CLUSTER, error_message=WHY, resource_type=one.resource_type, resource_name=one.resource_name
        )
        for one in resources
    ]


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


def _refusing(request: type[Message], code: ErrorCode) -> Handler:
    """Return a handler that refuses requests as a cluster member does if no controller answers, but with this code."""
    refuse = FORWARDED[request.API_KEY].refuse
    assert refuse is not None
    return lambda node, message, request: refuse(message, code, WHY)


def _at_top(response: type[Any], code: ErrorCode) -> Handler:
    return lambda node, message, request: response(error_code=code)


_REFUSED: dict[str, Handler] = {
    "AlterClientQuotas": _refusing(AlterClientQuotasRequest, _CLUSTER),
    "AlterUserScramCredentials": _refusing(AlterUserScramCredentialsRequest, _CLUSTER),
    "Produce": _produce,
    "InitProducerId": _init_producer_id,
    "CreateTopics": _refusing(CreateTopicsRequest, _CLUSTER),
    "DeleteTopics": _refusing(DeleteTopicsRequest, _TOPIC),
    "CreatePartitions": _refusing(CreatePartitionsRequest, _TOPIC),
    "DeleteRecords": _delete_records,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _incremental_alter_configs,
    "OffsetCommit": _offset_commit,
    "OffsetDelete": _at_top(OffsetDeleteResponse, _GROUP),
    "DeleteGroups": _delete_groups,
    "AddOffsetsToTxn": _at_top(AddOffsetsToTxnResponse, _TRANSACTION),
    "EndTxn": _at_top(EndTxnResponse, _TRANSACTION),
    "CreateAcls": _refusing(CreateAclsRequest, _CLUSTER),
    "DeleteAcls": _refusing(DeleteAclsRequest, _CLUSTER),
}

_NOT_SERVED = {"AddPartitionsToTxn", "TxnOffsetCommit", "WriteTxnMarkers"}

READ_ONLY_APIS: tuple[Api, ...] = tuple(
    api._replace(handle=_REFUSED[api.request.API_NAME], answer_usual=None) if api.request.API_NAME in _REFUSED else api
    for api in APIS
    if api.request.API_NAME not in _NOT_SERVED
)
"""The table of APIs, with handlers that refuse changes."""
