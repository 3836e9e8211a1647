"""Brokers as a source: its splits and groups."""
