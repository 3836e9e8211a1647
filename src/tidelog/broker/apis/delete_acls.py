"""DeleteAcls (31): removes the access control entries that match filters (KIP-140).

The filters work as in DescribeAcls. The response lists the removed entries for each filter. An entry that matches several filters
is listed for each of them, as in Kafka.
"""

from __future__ import annotations

from tidelog.broker.authorization.acl_changes import ACLS, deletion
from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import MAX_CHANGED, ApiError, api_error_of, too_many_changes
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded, vars_of
from tidelog.broker.topics.topic_changes import Job
from tidelog.security.acl import AclFilter, Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

ACCESS = whole(
    cluster(Operation.ALTER),
    refused=lambda message, code: DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code) for _ in message.filters]),
)


def handle(node: Node, message: DeleteAclsRequest, request: Request) -> Work:
    permissions = node.permissions
    if permissions is None:
        code, why = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
        return DeleteAclsResponse(
            filter_results=(yield from slowly((DeleteAclsFilterResult(code, why) for _ in message.filters), 256))
        )
    filters = yield from slowly((AclFilter(*vars_of(one)) for one in message.filters), 64)
    going: set[object] = set()
    results: list[DeleteAclsFilterResult] = []
    named = 0
    for wanted in filters:
        if wanted.is_unknown:
            results.append(DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, "the filter has an unknown element"))
            continue
        result = DeleteAclsFilterResult(ErrorCode.NONE, None)
        for count, (key, acl) in enumerate(list(permissions.authorizer.acls.items())):
            if count % 256 == 255:
                yield None
            if wanted.matches(acl):
                going.add(key)
                named += 1
                if named > MAX_CHANGED:
                    break
                result.matching_acls.append(DeleteAclsMatchingAcl(ErrorCode.NONE, None, *acl))
        results.append(result)
        yield None
        if named > MAX_CHANGED:
            break
    if named > MAX_CHANGED:
        results = yield from slowly((_refused(too_many_changes()) for _ in filters), 64)
    elif going:
        try:
            yield from node.topic_changes.side_by_side([Job(ACLS, deletion(node.manager.metadata, permissions, going))])
        except Exception as error:
            refusal = api_error_of(error)
            results = yield from slowly((_refused(refusal) for _ in filters), 64)
    yield from discarded(message, filters)
    return DeleteAclsResponse(filter_results=results)


def _refused(refusal: ApiError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(refusal.code, refusal.reason)


API = Api(DeleteAclsRequest, DeleteAclsResponse, Versions(0, 3), ACCESS, handle)
