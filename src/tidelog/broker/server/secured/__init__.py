"""Listeners with TLS and SASL: their security settings, authentication before the first request, TLS sockets."""
