"""Client quotas (KIP-13, KIP-55, KIP-219, KIP-599, KIP-612): limits for users, client ids and addresses.

| file | |
|---|---|
| `quota_rate` | a rate over recent windows, a token bucket, and the throttle times computed from them |
| `quota_limits` | which limit applies: users, client ids, defaults |
| `client_quotas` | counts requests against limits; one per broker |
| `connection_quotas` | measures and limits the rates of new connections |
"""
