"""Serves the storage engine over Kafka's protocol: one process, one event loop, which owns all state, and takes no locks.

| read | for |
|---|---|
| `serving_broker`, `broker`, `broker_thread` | a broker from its folder to its end: as a process, inside a Python program |
| `server/` | sockets, frames, order, limits; nothing else knows asyncio. Slices of the loop, budgets; numbers over HTTP |
| `authorization/`, `quotas/` | what a client may do, and how much |
| `api`, `apis/` | from a decoded request to its answer; one file an API: versions, rules, a plain function |
| `fetch/` | what `apis/fetch` needs: sessions, partitions read, delayed fetches, older formats |
| `groups/`, `transactions/` | the two coordinators |
| `state_log`, `delays` | what they stand on: tables in internal topics, the future on the log's clock |
| `core`, `node` | what all parts stand on: logs, clock, timers; and the parts, wired together: what the APIs share |
| `topics`, `topic_changes`, `leadership`, `replica_rules` | topics seen and changed, who leads what |
| `replicas/` | the replicas of a member of a cluster: leading, following, in-sync replicas |
| `cluster/` | a broker of a cluster: other nodes, and where its metadata comes from |
| `settings/` | the broker's properties, and a topic's as clients see and change them |
| `api_error`, `read_only` | what a request is refused for |
| `flushes` | producers that wait for the disk |
| `metrics`, `groups/group_lags` | what an operator sees |

A request's way: socket → frame → `server.dispatcher` decodes it → the API's `handle` → the response, at once or later → socket. A
connection's requests are answered one after the other, in their order, as Kafka does.
"""
