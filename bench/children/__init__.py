"""Processes that a bench starts, each of which prints one JSON line."""
