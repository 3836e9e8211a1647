"""Anybody's folder, read: partitions, segments, transactions, the search by time, what is missing, what can be salvaged.

Synchronous and read-only: another process may own the folder, and write to it meanwhile. `Log` and `LogDir` are the doors;
`time_search.find_offset` is the look-up that the time index exists for.
"""
