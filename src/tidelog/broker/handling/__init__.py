"""What surrounds the handlers of APIs: connection → authenticated principal → access check → handler.

| file | |
|---|---|
| `api` | the description of an API: messages, versions, access, handler |
| `access` | how each file of `apis/` declares the access check of its API |
| `config_access`, `produce_access` | the checks of the configuration APIs and of Produce; `fetch.fetch_access` is that of Fetch |
| `authorized_handler` | runs the check before the handler, and removes refused elements from the request |
| `faulty_handler` | requests that fail on demand, for tests of clients |
| `coordinator_handlers` | handlers that run where the coordinator is, and answer once its state is committed |
"""
