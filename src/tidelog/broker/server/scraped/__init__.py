"""The broker's metrics for Prometheus: what a scrape returns, and the server that returns it."""
