"""Consumer groups of the new protocol (KIP-848) as a pure state machine: no I/O, no clock, no timers.

| read | for |
|---|---|
| `consumer_group` | a group and its members: data, states, and how each of Kafka's records changes them |
| `heartbeats` | the records to write for a heartbeat, a leave, or the end of a session |
| `reconciliation` | how a member moves from its present partitions to its target assignment |
| `assignors` | the server-side assignors `range` and `uniform` |
| `target_assignment` | a group's input for an assignor, and the records of its result |

A change is a list of records. The records are appended to the log, and then applied to the group by the same code that loads a
group from the log. So a coordinator's state in memory equals what the next coordinator will load.
`coordinators.groups.consumer_coordinator` has the timers and the log.
"""
