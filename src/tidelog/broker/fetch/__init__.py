"""A fetch from its request to its answer: sessions, reading partitions, waiting for more, older formats."""
