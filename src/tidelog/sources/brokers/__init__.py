"""Brokers as a source: the source, its splits, its groups."""
