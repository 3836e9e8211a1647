"""A fetch from its request to its response: sessions, reading partitions, waiting for records, older message formats."""
