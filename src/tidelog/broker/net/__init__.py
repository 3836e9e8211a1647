"""Bytes and sockets: buffers for reading, turns for bulk, the budget of unsent bytes, TLS. Knows no request."""
