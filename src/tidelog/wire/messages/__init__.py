"""The messages, one module an API, each with what its versions changed. Names are Kafka's, in snake case."""
