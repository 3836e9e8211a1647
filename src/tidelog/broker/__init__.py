"""Serves the storage engine over Kafka's protocol: one process, one event loop, which owns all state. No locks in here.

| room | owns |
|---|---|
| `server`, `connection`, `dispatch` | sockets, frames, order, limits; the only modules that know asyncio |
| `apis/` | one file an API: its versions, its rules; a plain function from request to response |
| `node` | what the APIs share: the logs, the configuration, the clock, timers, who waits for records |
| `embedded` | a broker inside a Python process |

A request's way: socket → frame → `dispatch` decodes it → the API's `handle` → the response, at once or later → socket. A
connection's requests are answered one after the other, in their order, as Kafka does.
"""
