"""The same requests to Apache Kafka and to Tidelog, and their answers compared field by field."""
