"""Numbers that stand for a place in a log instead of a time (KIP-79, KIP-734); `time_search` says what each finds.

Apart from the search, so that who only compares them, as a broker does, need not load what reads folders.
"""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

UNKNOWN_OFFSET = -1
NO_LEADER_EPOCH = -1
