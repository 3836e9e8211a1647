"""One partition's log as files: segments and their indexes, the state kept beside them, and the search by time.

Synchronous, and read-only where it opens what another process owns. `Log` and `LogDir` are the doors;
`time_search.find_offset` is the look-up that the time index exists for.
"""
