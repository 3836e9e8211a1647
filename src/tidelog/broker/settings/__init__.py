"""The broker's properties under Kafka's names: parsing, defaults, those that change while it runs."""
