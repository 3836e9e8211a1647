"""The messages, one module per API, with what each version changed. Names are Kafka's, in snake case."""
