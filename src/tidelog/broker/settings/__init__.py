"""The broker's properties under Kafka's names: parsing, defaults, and changes at runtime."""
