"""Partitions on this broker: leadership, responses that wait for flushes, checks of batch headers, rules for replicas."""
