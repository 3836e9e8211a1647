"""Consumer groups of the new protocol (KIP-848) as a pure state machine: no I/O, no clock, no timers.

| read | for |
|---|---|
| `consumer_group` | a group and its members: data, states, and how each of Kafka's records changes them |
| `heartbeats` | what a heartbeat, a leave, or the end of a session changes: the records to write |
| `reconciliation` | how a member gets from what it has to its target assignment |
| `assignors` | the server-side assignors `range` and `uniform` |
| `target_assignment` | a group's input for an assignor, and the records of its result |

A change is a list of records. They are appended to the log first, and then applied to the group by the same code that loads a
group from the log. So what a coordinator has in memory is what the next one will load. `coordinators.groups.consumer_coordinator`
has the timers and the log.
"""
