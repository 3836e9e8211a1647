"""Settings that clients read and change: of topics, of the broker, of the whole cluster."""
