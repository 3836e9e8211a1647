"""Produce: records, finished batches, several requests in flight, transactions."""
