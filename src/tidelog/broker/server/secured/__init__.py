"""Listeners with TLS and SASL: security settings, authentication before the first request, and TLS sockets."""
