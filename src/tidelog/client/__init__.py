"""The little that Tidelog itself needs to talk to any Kafka-compatible broker: metadata, fetch, list offsets, produce.

Blocking sockets, one connection a broker. It is no group consumer.
"""
