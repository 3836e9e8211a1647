"""Decodes records of Kafka's internal topics into JSON: `records` decodes single records, `values` decodes Arrow columns."""
