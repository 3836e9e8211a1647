"""What `bench.broker_bench` and `bench.group_bench` are made of: the two brokers, the clients, the requests, the cases."""
