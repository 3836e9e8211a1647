"""The messages, one module per API, each with a table of the changes in each version. Names are Kafka's, in snake case."""
