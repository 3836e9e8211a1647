"""CreateDelegationToken (key 38): creates a token with which a client authenticates as a principal (KIP-48).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | flexible |
| 3 | a token for a different principal from the one that sends the request (KIP-373) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, data, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, api="CreateDelegationToken", key=38, versions="0-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, api="CreateDelegationToken", key=38, versions="0-3", flexible="2+"):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = data()
    throttle_time_ms: int = int32()
