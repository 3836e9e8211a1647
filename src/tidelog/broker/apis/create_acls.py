"""CreateAcls (30): adds access control entries (KIP-140). Entries that already exist stay unchanged.

Each entry is handled independently: an invalid entry does not affect the others. A standalone broker stores the entries in its
metadata log and answers once they are on disk. A cluster member forwards the request to the controllers. Without an authorizer
the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from tidelog.broker.authorization.acl_changes import ACLS, creation, why_invalid
from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import api_error_of
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded, vars_of
from tidelog.broker.topics.topic_changes import Job
from tidelog.security.acl import Acl, Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

ACCESS = whole(
    cluster(Operation.ALTER),
    refused=lambda message, code: CreateAclsResponse(results=[AclCreationResult(code) for _ in message.creations]),
)


def handle(node: Node, message: CreateAclsRequest, request: Request) -> Work:
    permissions = node.permissions
    if permissions is None:
        disabled = (AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.") for _ in message.creations)
        return CreateAclsResponse(results=(yield from slowly(disabled, 256)))
    acls = yield from slowly((Acl(*vars_of(one)) for one in message.creations), 64)
    results = yield from slowly((AclCreationResult(*why_invalid(acl)) for acl in acls), 64)
    wanted = yield from slowly((acl for acl, result in zip(acls, results, strict=True) if not result.error_code), 256)
    if wanted:
        try:
            yield from node.topic_changes.side_by_side([Job(ACLS, creation(node.manager.metadata, permissions, wanted))])
        except Exception as error:
            refusal = api_error_of(error)
            for result in results:
                if not result.error_code:
                    result.error_code, result.error_message = refusal.code, refusal.reason
    yield from discarded(message, acls, wanted)
    return CreateAclsResponse(results=results)


API = Api(CreateAclsRequest, CreateAclsResponse, Versions(0, 3), ACCESS, handle)
