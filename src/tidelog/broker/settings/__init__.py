"""The broker's properties under Kafka's names: files, defaults, changes through the protocol, descriptions."""
