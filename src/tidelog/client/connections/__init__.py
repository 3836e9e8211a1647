"""Connections to a cluster: addresses, TLS and SASL, blocking sockets, leaders, coordinators, retriable errors."""
