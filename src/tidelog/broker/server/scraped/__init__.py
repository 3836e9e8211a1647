"""The broker's metrics for Prometheus: what a scrape returns, and the HTTP server that serves it."""
