"""Parts of `bench.broker_bench` and `bench.group_bench`: the two brokers, the clients, the requests, the cases."""
