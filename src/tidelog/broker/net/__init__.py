"""Bytes and sockets: read buffers, turns for bulk transfers, the budget of unsent bytes, TLS. Does not depend on requests."""
