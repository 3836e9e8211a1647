"""The APIs that a member forwards to the controllers, and the error that a client gets if no controller answers in time.

The versions are those of Apache Kafka 3.9 to 4.4. APIs without message definitions here (those that change voters) are forwarded
as well, because only the controllers need to decode their frames.

AlterConfigs and IncrementalAlterConfigs are not in the table: `config_forwarding` handles them first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.wire.codec import Bytes
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, ZERO_UUID, Message, Versions
from tidelog.wire.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_client_quotas,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from tidelog.wire.messages import (
    alter_partition_reassignments as reassigning,
)

Refuse = Callable[[Any, ErrorCode, str], Message]
"""Builds the error response from the request, the error code and the reason."""


class Forwarded(NamedTuple):
    """An API that is forwarded to the controllers."""

    key: int
    name: str
    served: Versions
    request: type[Message] | None = None
    refuse: Refuse | None = None
    """If None, the client's connection is closed when no controller answers."""


def _create_topics(message: create_topics.CreateTopicsRequest, code: ErrorCode, reason: str) -> Message:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=one.name, error_code=code, error_message=reason) for one in message.topics
        ]
    )


def _delete_topics(message: delete_topics.DeleteTopicsRequest, code: ErrorCode, reason: str) -> Message:
    wanted = [(one.name, one.topic_id) for one in message.topics] or [(name, ZERO_UUID) for name in message.topic_names]
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=reason)
            for name, topic_id in wanted
        ]
    )


def _create_partitions(message: create_partitions.CreatePartitionsRequest, code: ErrorCode, reason: str) -> Message:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(name=one.name, error_code=code, error_message=reason)
            for one in message.topics
        ]
    )


def _reassign(message: reassigning.AlterPartitionReassignmentsRequest, code: ErrorCode, reason: str) -> Message:
    return reassigning.AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=reason,
        responses=[
            reassigning.ReassignableTopicResponse(
                topic.name,
                [reassigning.ReassignablePartitionResponse(one.partition_index, code, reason) for one in topic.partitions],
            )
            for topic in message.topics
        ],
    )


def _alter_quotas(message: alter_client_quotas.AlterClientQuotasRequest, code: ErrorCode, reason: str) -> Message:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[alter_client_quotas.EntryResult(code, reason, one.entity) for one in message.entries]
    )


def _alter_users(message: alter_user_scram_credentials.AlterUserScramCredentialsRequest, code: ErrorCode, reason: str) -> Message:
    users = dict.fromkeys([one.name for one in message.deletions] + [one.name for one in message.upsertions])
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[alter_user_scram_credentials.AlterUserScramCredentialsResult(user, code, reason) for user in users]
    )


def _create_acls(message: create_acls.CreateAclsRequest, code: ErrorCode, reason: str) -> Message:
    return create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult(code, reason) for _ in message.creations])


def _delete_acls(message: delete_acls.DeleteAclsRequest, code: ErrorCode, reason: str) -> Message:
    results = [delete_acls.DeleteAclsFilterResult(code, reason) for _ in message.filters]
    return delete_acls.DeleteAclsResponse(filter_results=results)


def _at_top(response: type[Any]) -> Refuse:
    def refuse(message: Message, code: ErrorCode, reason: str) -> Message:
        refusal: Message = response(error_code=code)
        if hasattr(refusal, "error_message"):
            refusal.error_message = reason
        return refusal

    return refuse


def _known(request: type[Message], refuse: Refuse) -> Forwarded:
    return Forwarded(request.API_KEY, request.API_NAME, Versions(request.VERSIONS[0], request.VERSIONS[-1]), request, refuse)


FORWARDED: dict[int, Forwarded] = {
    one.key: one
    for one in (
        _known(create_topics.CreateTopicsRequest, _create_topics),
        _known(delete_topics.DeleteTopicsRequest, _delete_topics),
        _known(create_partitions.CreatePartitionsRequest, _create_partitions),
        _known(elect_leaders.ElectLeadersRequest, _at_top(elect_leaders.ElectLeadersResponse)),
        _known(reassigning.AlterPartitionReassignmentsRequest, _reassign),
        _known(
            list_partition_reassignments.ListPartitionReassignmentsRequest,
            _at_top(list_partition_reassignments.ListPartitionReassignmentsResponse),
        ),
        _known(describe_quorum.DescribeQuorumRequest, _at_top(describe_quorum.DescribeQuorumResponse)),
        _known(update_features.UpdateFeaturesRequest, _at_top(update_features.UpdateFeaturesResponse)),
        _known(unregister_broker.UnregisterBrokerRequest, _at_top(unregister_broker.UnregisterBrokerResponse)),
        _known(create_acls.CreateAclsRequest, _create_acls),
        _known(delete_acls.DeleteAclsRequest, _delete_acls),
        _known(alter_client_quotas.AlterClientQuotasRequest, _alter_quotas),
        _known(alter_user_scram_credentials.AlterUserScramCredentialsRequest, _alter_users),
        Forwarded(80, "AddRaftVoter", Versions(0, 1)),
        Forwarded(81, "RemoveRaftVoter", Versions(0, 0)),
    )
}
"""The forwarded APIs by API key."""

_ZOOKEEPER: dict[int, Forwarded] = {
    one.key: one
    for one in (
        _known(describe_client_quotas.DescribeClientQuotasRequest, _at_top(describe_client_quotas.DescribeClientQuotasResponse)),
        _known(
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
            _at_top(describe_user_scram_credentials.DescribeUserScramCredentialsResponse),
        ),
    )
}


def forwarded_with(plane: MetadataPlane) -> dict[int, Forwarded]:
    """Return the APIs that a member forwards, by API key.

    In a ZooKeeper cluster they include DescribeClientQuotas and DescribeUserScramCredentials, because this broker does not read
    quotas and users from ZooKeeper.
    """
    return FORWARDED if plane.config_writer is None else FORWARDED | _ZOOKEEPER


def throttle_ms(key: int, version: int, answer: Bytes) -> int:
    """Return the throttle time in ms (KIP-599) in a controller's response, which begins with its size; 0 if it is absent."""
    response = RESPONSES.get(key)
    first = None if response is None else next((one for one in response.FIELDS if version in one.versions), None)
    if response is None or first is None or first.name != "throttle_time_ms":
        return 0
    position = 8
    if version >= response.FIRST_FLEXIBLE:
        if len(answer) <= position or answer[position]:
            return 0  # Tagged fields in the header: no controller sends any.
        position += 1
    return max(int.from_bytes(answer[position : position + 4], signed=True), 0)
