"""Listeners with TLS and SASL: how each is secured, what stands before requests until somebody has authenticated, TLS sockets."""
