"""A cluster's brokers as a source, with its splits and groups."""
