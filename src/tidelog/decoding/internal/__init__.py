"""Records of Kafka's internal topics as JSON: `records` decodes single records, `values` decodes Arrow columns."""
