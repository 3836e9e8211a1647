"""Records of Kafka's internal topics as JSON: `records` decodes them one by one, `values` as Arrow columns."""
