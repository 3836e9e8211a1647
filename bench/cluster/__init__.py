"""Three brokers of Tidelog and three of Apache Kafka under the same controllers: what `bench.cluster_bench` measures."""
