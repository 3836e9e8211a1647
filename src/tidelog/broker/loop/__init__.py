"""The event loop as the broker uses it: timers, threads, waits by the log's clock, retries, logs that do not flood, counters.

Imports nothing of the broker.
"""
