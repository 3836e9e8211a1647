"""Between the dispatcher and the handlers: connection → authenticated principal → authorizer → handler.

| file | |
|---|---|
| `access` | how each file of `apis/` declares the access check of its API |
| `config_access`, `produce_access`, `fetch_access` | the checks of the configuration APIs, Produce and Fetch |
| `authorized_handler` | runs the check before the handler, and removes refused elements from the request |
| `faults`, `faulty_handler` | requests that fail on demand, for tests of clients |
| `permissions` | the broker's authorizer, with ACLs from the metadata, and the log of its decisions |
| `acl_changes` | creation and deletion of ACLs on a standalone broker |

Without an authorizer there are no `permissions`, and handlers run without checks.
"""
