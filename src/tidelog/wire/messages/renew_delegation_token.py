"""RenewDelegationToken (key 39): makes a token expire later (KIP-48).

| version | what it changed |
|---|---|
| 1 | throttled clients get the response at once |
| 2 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, data, int16, int32, int64


class RenewDelegationTokenRequest(Message, api="RenewDelegationToken", key=39, versions="0-2", flexible="2+"):
    hmac: bytes = data()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api="RenewDelegationToken", key=39, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
