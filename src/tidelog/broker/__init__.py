"""Serves the storage engine over Kafka's protocol: one process with one event loop, which owns all state and takes no locks.

The packages are layers: each imports only from those below it, type annotations included (`make check`).

| layer | for |
|---|---|
| `broker`, `broker_thread` | a broker inside a Python program |
| `cluster/` | a member of a cluster: KRaft, ZooKeeper; `cluster.startup` chooses the kind of broker by its configuration |
| `controller/` | the controller of several brokers on one machine |
| `serving_broker`, `read_only` | a running broker, from the folder to the sockets; a broker that changes nothing |
| `server/` | reads frames from connections, in order and within limits, and sends responses; authentication; metrics over HTTP |
| `dispatch/` | from a frame to the handler of its API, and back |
| `apis/` | from a decoded request to its response; one file per API: versions, rules, a plain function |
| `handling/` | the code around a handler: the description of an API, authorization, injected faults |
| `node` | creates and connects all parts, for the APIs. The parts do not import it |
| `replicas/`, `coordinators/`, `configs/` | replicas of a cluster member; groups and transactions; settings that clients change |
| `topics/` | the topics that clients see, and their changes |
| `core` | what all parts use: logs, clock, timers, threads |
| `fetch/` | what `apis/fetch` uses: sessions, reads of partitions, delayed fetches, older formats |
| `partitions/` | which partitions this broker leads; flushes |
| `authorization/`, `quotas/`, `peers/` | permissions; client limits; connections to other brokers and controllers |
| `settings/` | the broker's properties: parsing, defaults, dynamic ones |
| `requests/` | a request while it is served; work in slices; errors with a code |
| `loop/`, `net/` | timers and threads; bytes and sockets |

A request's path: socket → frame → `dispatch.dispatcher` decodes it → the API's `handle` → response, at once or later → socket.
Frequent requests of some APIs are not decoded: see `dispatch.usual_api`.
The requests of one connection are answered one at a time and in order, as in Kafka.
"""
