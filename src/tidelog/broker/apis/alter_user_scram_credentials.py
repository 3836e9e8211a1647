"""AlterUserScramCredentials (51): sets and deletes users' SCRAM credentials (KIP-554). A standalone broker stores them in its
metadata log.

A client sends the salted password, not the password itself. The broker keeps only two keys derived from the salted password. A
client cannot authenticate with these keys, but they can be used to test guesses of a weak password. In a cluster the request is
forwarded to the controllers (`peers.forwarded_apis`).

| refused | with |
|---|---|
| an empty name; fewer than 4,096 or more than 16,384 iterations | UNACCEPTABLE_CREDENTIAL |
| an unknown mechanism | UNSUPPORTED_SASL_MECHANISM |
| a user that is named more than once in the request | DUPLICATE_RESOURCE |
| a deletion of an unknown credential | RESOURCE_NOT_FOUND |
| any change, if the folder's metadata.version is below 3.5 | UNSUPPORTED_VERSION |
| the whole request, if it has more than 10,000 users | POLICY_VIOLATION |

The checks and their order are those of Kafka's ScramControlManager. One refused user does not affect the others.
"""

from __future__ import annotations

from itertools import chain
from typing import TypeAlias

from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import MAX_CHANGED, ApiError, api_error_of, too_many_changes
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topic_changes import Job
from tidelog.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from tidelog.metadata.versions import SCRAM_LEVEL
from tidelog.security.acl import Operation
from tidelog.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_IDS, credential_of
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message, Versions
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

ACCESS = whole(
    cluster(Operation.ALTER),
    refused=lambda message, code: AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user, code)
            for user in dict.fromkeys([one.name for one in message.deletions] + [one.name for one in message.upsertions])
        ]
    ),
)

JOB = "scram users"
"""The job name under which user changes run one at a time. It is not a valid topic name."""

_MECHANISMS = {number: name for name, number in SCRAM_IDS.items()}

_Alteration: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


def handle(node: Node, message: AlterUserScramCredentialsRequest, request: Request) -> Work:
    wanted: dict[str, _Alteration] = {}
    refused: dict[str, ApiError] = {}
    alterations: chain[_Alteration] = chain(message.deletions, message.upsertions)
    for count, one in enumerate(alterations):
        if one.name in refused:
            continue
        if one.name in wanted:
            del wanted[one.name]
            refused[one.name] = ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
            continue
        try:
            _check(node, one)
            wanted[one.name] = one
        except ApiError as refusal:
            refused[one.name] = api_error_of(refusal)
        if count % 256 == 255:
            yield None
    (failure,) = yield from node.topic_changes.side_by_side([Job(JOB, _change(node, wanted, refused))])
    results = yield from slowly((_result(name, refused.get(name) or failure) for name in chain(wanted, refused)), 256)
    yield from discarded(message, wanted, refused)
    return AlterUserScramCredentialsResponse(results=results)


def _result(name: str, why: ApiError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(name) if why is None else AlterUserScramCredentialsResult(name, why.code, why.reason)


def _change(node: Node, wanted: dict[str, _Alteration], refused: dict[str, ApiError]) -> Steps[ApiError | None]:
    """Write all accepted changes together. Return the error if they could not be written, otherwise None.

    A deletion is refused here if another request has deleted the credential since the first check.
    """
    if len(wanted) > MAX_CHANGED:  # Kafka's controller does not limit the number of users.
        return too_many_changes()
    records: list[Message] = []
    for count, one in enumerate(list(wanted.values())):
        if isinstance(one, ScramCredentialDeletion):
            if (one.name, one.mechanism) in node.image.scram:
                records.append(RemoveUserScramCredentialRecord(one.name, one.mechanism))
            else:
                del wanted[one.name]
                refused[one.name] = _not_found()
        else:
            mechanism = _MECHANISMS[one.mechanism]
            made = credential_of(mechanism, bytes(one.salted_password), bytes(one.salt), one.iterations)
            records.append(
                UserScramCredentialRecord(one.name, one.mechanism, made.salt, made.stored_key, made.server_key, made.iterations)
            )
        if count % 64 == 63:
            yield None
    if records:
        try:
            yield node.manager.metadata.append(records)
        except Exception as error:
            return api_error_of(error)
    return None


def _check(node: Node, one: _Alteration) -> None:
    if node.image.metadata_version < SCRAM_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not one.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism not in _MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(one, ScramCredentialDeletion):
        if (one.name, one.mechanism) not in node.image.scram:
            raise _not_found()
    elif one.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif one.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _not_found() -> ApiError:
    return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


API = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, Versions(0, 0), ACCESS, handle)
