"""Reads and writes messages of the protocol, without an object for each of their structs."""
