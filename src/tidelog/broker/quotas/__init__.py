"""Client quotas (KIP-13, KIP-55, KIP-219, KIP-599, KIP-612): what users, client ids and addresses may use, and their waits.

| file | |
|---|---|
| `quota_rate` | a rate over the last windows, a bucket of tokens, and what they say of the time to wait |
| `quota_limits` | which limit is whose: users, client ids, defaults |
| `client_quotas` | counts requests against limits; a broker has one |
| `connection_limits` | how many connections there may be, and how fast they may come: `server.broker_server` asks |
| `connection_quotas` | the rates of new connections |
"""
