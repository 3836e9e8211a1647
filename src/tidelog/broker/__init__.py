"""Serves the storage engine over Kafka's protocol: one process with one event loop, which owns all state and takes no locks.

| read | for |
|---|---|
| `serving_broker`, `broker`, `broker_thread` | a running broker, as a process or inside a Python program |
| `server/` | sockets, frames, order, limits; the only user of asyncio. Slices of the loop, budgets; metrics over HTTP |
| `authorization/`, `quotas/` | permissions and client limits |
| `api`, `apis/` | from a decoded request to its response; one file per API: versions, rules, a plain function |
| `fetch/` | what `apis/fetch` needs: sessions, partitions read, delayed fetches, older formats |
| `groups/`, `transactions/` | the group and transaction coordinators |
| `state_log`, `delays` | what coordinators build on: tables in internal topics, timers on the log's clock |
| `core`, `node` | `core`: what all parts use (logs, clock, timers); `node`: all parts wired together, for the APIs |
| `topics`, `topic_changes`, `leadership`, `replica_rules` | topics, their changes, and partition leadership |
| `replicas/` | the replicas of a cluster member: leading, following, in-sync replicas |
| `cluster/` | a cluster member: connections to other nodes, source of its metadata |
| `settings/` | broker and topic properties, as clients see and change them |
| `api_error`, `read_only` | reasons for refusing a request |
| `flushes` | produce requests that wait for the disk |
| `metrics`, `groups/group_lags` | figures for the operator |

A request's path: socket → frame → `server.dispatcher` decodes it → the API's `handle` → the response, at once or later → socket.
The requests of one connection are answered one at a time and in order, as in Kafka.
"""
