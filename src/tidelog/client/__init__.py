"""The little that Tidelog itself needs to talk to any Kafka-compatible broker: metadata, fetch, list offsets, produce.

| room | owns |
|---|---|
| `addresses` | `host:port`, and what is none |
| `connection` | one blocking socket: requests, responses, the versions that a broker offers |
| `cluster` | who leads what, connections that are lent, a request to each leader until it is answered |
| `failures` | which error codes are tried again, for how long, and what the others raise |
| `offsets`, `ranges` | offsets for times; where to read for a range of time, so that nothing is missed |
| `fetching`, `producing` | one partition's batches out; records in |
| `client` | what users call: `tidelog.connect` |

It is no group consumer.
"""
