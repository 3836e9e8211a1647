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
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import (
    add_offsets_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    end_txn,
    incremental_alter_configs,
    init_producer_id,
    offset_commit,
    offset_delete,
    produce,
)

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


def _init_producer_id(node: Node, message: init_producer_id.InitProducerIdRequest, request: Request) -> Message:
    code = _CLUSTER if message.transactional_id is None else _TRANSACTION
    return init_producer_id.InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _create_topics(node: Node, message: create_topics.CreateTopicsRequest, request: Request) -> Message:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=one.name, error_code=_CLUSTER, error_message=WHY) for one in message.topics
        ]
    )


def _delete_topics(node: Node, message: delete_topics.DeleteTopicsRequest, request: Request) -> Message:
    refused = [(one.name, one.topic_id) for one in message.topics] or [(name, NO_TOPIC_ID) for name in message.topic_names]
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(name=name, topic_id=topic_id, error_code=_TOPIC, error_message=WHY)
            for name, topic_id in refused
        ]
    )


def _create_partitions(node: Node, message: create_partitions.CreatePartitionsRequest, request: Request) -> Message:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(name=one.name, error_code=_TOPIC, error_message=WHY)
            for one in message.topics
        ]
    )


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


def _offset_delete(node: Node, message: offset_delete.OffsetDeleteRequest, request: Request) -> Message:
    return offset_delete.OffsetDeleteResponse(error_code=_GROUP)


def _delete_groups(node: Node, message: delete_groups.DeleteGroupsRequest, request: Request) -> Message:
    return delete_groups.DeleteGroupsResponse(
        results=[
            delete_groups.DeletableGroupResult(group_id=name, error_code=_GROUP, error_message=WHY)
            for name in message.groups_names
        ]
    )


def _add_offsets_to_txn(node: Node, message: Message, request: Request) -> Message:
    return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=_TRANSACTION)


def _end_txn(node: Node, message: Message, request: Request) -> Message:
    return end_txn.EndTxnResponse(error_code=_TRANSACTION)


def _alter_client_quotas(node: Node, message: alter_client_quotas.AlterClientQuotasRequest, request: Request) -> Message:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[alter_client_quotas.EntryResult(_CLUSTER, WHY, one.entity) for one in message.entries]
    )


def _alter_user_scram_credentials(
    node: Node, message: alter_user_scram_credentials.AlterUserScramCredentialsRequest, request: Request
) -> Message:
    users = dict.fromkeys([one.name for one in message.deletions] + [one.name for one in message.upsertions])
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[alter_user_scram_credentials.AlterUserScramCredentialsResult(user, _CLUSTER, WHY) for user in users]
    )


def _create_acls(node: Node, message: create_acls.CreateAclsRequest, request: Request) -> Message:
    return create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult(_CLUSTER, WHY) for _ in message.creations])


def _delete_acls(node: Node, message: delete_acls.DeleteAclsRequest, request: Request) -> Message:
    results = [delete_acls.DeleteAclsFilterResult(_CLUSTER, WHY) for _ in message.filters]
    return delete_acls.DeleteAclsResponse(filter_results=results)


_REFUSED: dict[str, Handler] = {
    "AlterClientQuotas": _alter_client_quotas,
    "AlterUserScramCredentials": _alter_user_scram_credentials,
    "Produce": _produce,
    "InitProducerId": _init_producer_id,
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "CreatePartitions": _create_partitions,
    "DeleteRecords": _delete_records,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _incremental_alter_configs,
    "OffsetCommit": _offset_commit,
    "OffsetDelete": _offset_delete,
    "DeleteGroups": _delete_groups,
    "AddOffsetsToTxn": _add_offsets_to_txn,
    "EndTxn": _end_txn,
    "CreateAcls": _create_acls,
    "DeleteAcls": _delete_acls,
}

_NOT_SERVED = {"AddPartitionsToTxn", "TxnOffsetCommit", "WriteTxnMarkers"}

READ_ONLY_APIS: tuple[Api, ...] = tuple(
    api._replace(handle=_REFUSED[api.request.API_NAME], answer_usual=None) if api.request.API_NAME in _REFUSED else api
    for api in APIS
    if api.request.API_NAME not in _NOT_SERVED
)
"""The table of APIs, with handlers that refuse changes."""
