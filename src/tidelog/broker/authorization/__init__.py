"""Between the dispatcher and the handlers: connection → authenticated principal → authorizer → handler.

| file | |
|---|---|
| `access` | what an API checks, as each file of `apis/` declares it, and the usual forms of that |
| `config_access`, `produce_access`, `fetch_access` | what APIs of configurations, Produce and Fetch check |
| `authorized_handler` | a handler with what it checks in front: what is refused never comes to it |
| `faults`, `faulty_handler` | requests that fail on demand, for tests of clients: refused as by a missing right |
| `permissions` | the broker's authorizer: its entries from the metadata, and the log of its decisions |
| `acl_changes` | entries that are created and deleted, of a broker that is alone |

Without an authorizer there are no `permissions`, and handlers stand as they are: nothing is asked.
"""
