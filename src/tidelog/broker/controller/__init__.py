"""A controller for the brokers of one machine. It speaks KRaft's protocol to them, and is its quorum's only voter (KIP-595).

The processes of `tidelog serve --processes` are ordinary members of a cluster. This is their controller: it registers and fences
them, gives each its share of partitions, and writes the metadata log that they follow. There is no election and no replication:
each partition has one replica.

| read | for |
|---|---|
| `registrations` | registering brokers, heartbeats, fencing; who leads when a broker comes or goes |
| `controlled_topics` | topics: which broker gets which partition |
| `metadata_reads` | the metadata log, as brokers fetch it; the brokers that do |
| `apis/` | the requests that only brokers send, one file each |
| `controller_node` | creates and connects the parts |
| `enveloped` | clients' requests that a broker forwards |
"""
