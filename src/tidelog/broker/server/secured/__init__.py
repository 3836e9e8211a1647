"""Listeners with TLS and SASL: how each is secured, authentication before the first request, TLS sockets."""
