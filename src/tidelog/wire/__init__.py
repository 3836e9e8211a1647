"""The Kafka protocol as bytes, and nothing else: messages, versions, headers, error codes. No sockets, no clock, no state.

`messages/` declares every message, one file per API. `codec` compiles the reader and writer for a version of a message on first
use. `coordinator/` declares, in the same notation, the records that coordinators store. Record batches pass as memoryviews in
both directions: they are neither copied nor parsed.
"""
