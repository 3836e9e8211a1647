"""Between the dispatcher and the handlers: connection → authenticated principal → authorizer → handler.

| file | |
|---|---|
| `access` | the access check of an API, as each file of `apis/` declares it, in its usual forms |
| `config_access`, `produce_access`, `fetch_access` | the checks of the configuration APIs, Produce and Fetch |
| `authorized_handler` | runs the check before a handler, which does not see refused elements |
| `faults`, `faulty_handler` | requests that fail on demand, for tests of clients |
| `permissions` | the broker's authorizer, with ACLs from the metadata, and the log of its decisions |
| `acl_changes` | creation and deletion of ACLs on a standalone broker |

Without an authorizer there are no `permissions`, and handlers run without checks.
"""
