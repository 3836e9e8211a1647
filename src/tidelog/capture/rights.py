"""Reads a cluster's ACLs, quotas, and the names of its SCRAM users. Users' secrets cannot be read.

| request for | needs permission |
|---|---|
| ACLs | Describe on the cluster |
| quotas | DescribeConfigs on the cluster |
| SCRAM users | Describe on the cluster |
"""

from __future__ import annotations

from typing import Any

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.failures import error_for
from tidelog.errors import TidelogError
from tidelog.wire.codec import Message
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

ANY = 1
"""Kafka's number for "any" in a filter: any type of resource or pattern, any operation, any permission."""
_NEWEST = {"DescribeAcls": 3, "DescribeClientQuotas": 1, "DescribeUserScramCredentials": 0}


def describe_rights(cluster: Cluster) -> dict[str, Any]:
    """Return ACLs, quotas and SCRAM users as JSON values, with Kafka's numeric codes. `not_described` names those that were
    refused, with the reason.
    """
    found: dict[str, Any] = {"acls": None, "quotas": None, "scram_users": None, "not_described": {}}
    acls = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = _ask(cluster, "acls", acls, DescribeAclsResponse, found)
    if answer is not None:
        found["acls"] = sorted(
            (one.resource_type, one.resource_name, one.pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type)
            for one in answer.resources
            for acl in one.acls
        )
    quotas = _ask(cluster, "quotas", DescribeClientQuotasRequest(), DescribeClientQuotasResponse, found)
    if quotas is not None:
        found["quotas"] = sorted(
            [
                {
                    "entity": {part.entity_type: part.entity_name for part in one.entity},
                    "values": {value.key: value.value for value in one.values},
                }
                for one in quotas.entries or ()
            ],
            key=repr,
        )
    request = DescribeUserScramCredentialsRequest(users=None)
    users = _ask(cluster, "scram_users", request, DescribeUserScramCredentialsResponse, found)
    if users is not None:
        found["scram_users"] = {
            one.user: {str(info.mechanism): info.iterations for info in one.credential_infos}
            for one in users.results
            if not one.error_code
        }
    return found


def _ask(cluster: Cluster, what: str, request: Message, response: type[Any], found: dict[str, Any]) -> Any:
    """Send a request and return its response. If the request fails, return None, and add the reason to `not_described`."""
    try:
        answer = cluster.ask_any(request, response, newest=_NEWEST[request.API_NAME])
        if answer.error_code:
            raise error_for(answer.error_code, f"{request.API_NAME}", cluster, answer.error_message)
    except TidelogError as error:
        found["not_described"][what] = str(error)
        return None
    return answer
