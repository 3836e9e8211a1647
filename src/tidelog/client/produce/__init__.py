"""Into a cluster: records, finished batches, several requests in flight, transactions."""
