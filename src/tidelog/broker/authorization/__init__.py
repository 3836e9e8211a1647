"""Decides which operations a principal may perform. `broker.handling` has the checks that run before the handlers.

| file | |
|---|---|
| `permissions` | the broker's authorizer, with ACLs from the metadata, and the log of its decisions |
| `acl_changes` | creation and deletion of ACLs on a standalone broker |
| `faults` | requests that fail on demand, for tests of clients |

Without an authorizer every request is allowed, and `permissions` is not used.
"""
