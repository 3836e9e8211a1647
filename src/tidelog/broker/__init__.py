"""Serves the storage engine over Kafka's protocol: one process, one event loop, which owns all state, and takes no locks.

| read | for |
|---|---|
| `running`, `embedded` | a broker from its folder to its end: as a process, inside a Python program |
| `server`, `connection`, `lingering`, `read_buffers`, `event_loop` | sockets, frames, order, limits; nothing else knows asyncio |
| `dispatch`, `api`, `apis/` | from a frame to its answer; one file an API: versions, rules, a plain function |
| `fetching`, `fetch_reader`, `fetch_sessions`, `arrivals`, `down_conversion` | what `apis/fetch` needs |
| `slices`, `wide_requests`, `unsent_bytes` | what one client may take from the others: time of the loop, memory |
| `groups/`, `transactions/` | the two coordinators |
| `state_log`, `delays` | what they stand on: tables in internal topics, the future on the log's clock |
| `node`, `topics`, `leadership` | what the APIs share: the logs, the clock, timers, who waits for records |
| `config`, `listeners`, `server_properties`, `unused_properties` | the broker's properties |
| `config_entries`, `config_changes` | a topic's, as clients see and change them |
| `refusals`, `replica_rules` | what a request is refused for; which replicas can be asked for |
| `metrics`, `group_lags`, `prometheus`, `refusal_log` | what an operator sees |

A request's way: socket → frame → `dispatch` decodes it → the API's `handle` → the response, at once or later → socket. A
connection's requests are answered one after the other, in their order, as Kafka does.
"""
