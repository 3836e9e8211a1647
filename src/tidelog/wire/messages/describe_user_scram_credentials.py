"""DescribeUserScramCredentials (key 50): the SCRAM mechanisms for which each user has a password (KIP-554).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api="DescribeUserScramCredentials", key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, api="DescribeUserScramCredentials", key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
