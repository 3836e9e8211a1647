"""DescribeUserScramCredentials (50): returns users and their SCRAM mechanisms, from the metadata (KIP-554).

A request without users asks for all. A user that is named twice gets DUPLICATE_RESOURCE; a user without a credential gets
RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import shortened
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, counted, grouped, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

ACCESS = whole(
    cluster(Operation.DESCRIBE),
    refused=lambda message, code: DescribeUserScramCredentialsResponse(error_code=code, error_message=None),
)


def handle(node: Node, message: DescribeUserScramCredentialsRequest, request: Request) -> Work:
    credentials = list(node.image.scram.items())
    known = yield from grouped((user, CredentialInfo(mechanism, one.iterations)) for (user, mechanism), one in credentials)
    times = (yield from counted(one.name for one in message.users)) if message.users else dict.fromkeys(known, 1)
    results = yield from slowly((_result(user, asked, known.get(user)) for user, asked in times.items()), 128)
    yield from discarded(message, times)
    return DescribeUserScramCredentialsResponse(results=results)


def _result(user: str, times: int, found: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    if times > 1:
        why = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.DUPLICATE_RESOURCE, shortened(why))
    if found is None:
        why = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.RESOURCE_NOT_FOUND, shortened(why))
    return DescribeUserScramCredentialsResult(user, credential_infos=found)


API = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, Versions(0, 0), ACCESS, handle)
