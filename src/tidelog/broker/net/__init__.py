"""Bytes and sockets: read buffers, turns for bulk transfers, responses that are sent together, the budget of unsent bytes, TLS.
Does not depend on requests.
"""
