"""The event loop as the broker uses it: timers, threads, delays on the log's clock, rate-limited logging, counters.

Imports no other part of the broker.
"""
