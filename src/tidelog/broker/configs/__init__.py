"""Settings that clients can read and change: those of topics, of this broker, and of the whole cluster."""
