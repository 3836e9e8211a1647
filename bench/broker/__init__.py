"""What `bench.broker_bench` is made of: the two brokers, the clients, the requests, the cases."""
