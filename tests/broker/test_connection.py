"""How a connection reads, answers and ends: order, sizes, what is no request."""

from __future__ import annotations

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest


def versions(version: int = 0) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1") if version >= 3 else ApiVersionsRequest()


def test_api_versions_tells_what_is_served(broker: RunningBroker, client: RawClient) -> None:
    for version in range(5):
        response = client.ask(versions(version), version)
        assert response.error_code == ErrorCode.NONE
        told = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        assert told == {api.request.API_KEY: (api.min_version, api.max_version) for api in broker.node.apis}


def test_requests_are_answered_in_their_order(client: RawClient) -> None:
    for _ in range(500):
        client.send(versions(), 0)
    for _ in range(500):
        assert client.receive().api_keys
