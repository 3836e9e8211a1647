"""The Kafka protocol as bytes: messages, versions, headers, error codes. This package has no sockets, no clock and no state.

`messages/` declares every message, one file per API. `codec` compiles the reader and writer for a version of a message on first
use. `coordinator/` declares, in the same notation, the records that coordinators store. In both directions record batches are
memoryviews, which are neither copied nor parsed.
"""
