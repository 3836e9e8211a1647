"""The broker's properties under Kafka's names: parsing, defaults, changes through the protocol, descriptions."""
