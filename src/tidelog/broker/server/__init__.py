"""Sockets and frames: listen, accept, read requests, dispatch them in slices, write answers within budgets."""
