"""ApiVersions (18): which APIs are served, in which versions. Derived from the table in `dispatch`.

A version that is not served gets UNSUPPORTED_VERSION in version 0 with the versions of ApiVersions, so that the client can ask
again. The response's header is always of version 0: a client that does not know what it talks to must be able to read it.
"""

from __future__ import annotations

import re

from tidelog.broker.api import Api, Request
from tidelog.broker.node import Node
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

SERVED = Versions(0, 4)
"""What each version changed: the table of `tidelog.wire.messages.api_versions`."""


_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, message: ApiVersionsRequest, request: Request) -> ApiVersionsResponse:
    """Answer with every API of the node."""
    if request.api_version >= 3 and not (
        _NAME.fullmatch(message.client_software_name) and _NAME.fullmatch(message.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=[_versions(api) for api in node.apis])


def unsupported_version() -> ApiVersionsResponse:
    """Answer to a version that is not served; to be sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_versions(API)])


def _versions(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.request.API_KEY, min_version=api.served.first, max_version=api.served.last)


API = Api(ApiVersionsRequest, ApiVersionsResponse, SERVED, handle)
