"""The layers around the handlers of APIs: connection → authenticated principal → access check → handler.

| file | |
|---|---|
| `api` | the description of an API: messages, versions, access, handler |
| `access` | declarations of access checks, for the files of `apis/` |
| `produce_refusals` | the check of Produce, and results of refused records; `fetch.fetch_access` checks Fetch |
| `authorized_handler` | runs the check before the handler, and removes refused elements from the request |
| `faulty_handler` | makes requests fail on demand, for tests of clients |
| `coordinator_handlers` | wraps the coordinators' handlers: their responses are sent once the coordinator's state is committed |
"""
