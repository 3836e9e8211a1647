"""The Kafka protocol as bytes, and nothing else: messages, versions, headers, error codes. No sockets, no clock, no state.

`messages/` declares every message, one file an API; `codec` compiles a message's reader and writer for a version when it is
first used. `coordinator/` declares in the same notation what coordinators keep in records. Record bytes pass as memoryviews both
ways: they are never copied, and never looked into.
"""
