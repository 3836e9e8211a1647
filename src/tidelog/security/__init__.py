"""Authentication and encryption: TLS settings and contexts, SASL mechanisms as state machines, secrets.

This package is pure: no event loop, and no sockets except in `token_endpoint`.

| module | owns |
|---|---|
| `secret` | a string that is never printed, such as a password |
| `client_config` | a client's properties, under Kafka's and librdkafka's names |
| `tls_settings`, `tls_context` | `ssl.*`; contexts built from them, and rebuilt when files change |
| `tls_errors` | the errors for failed handshakes |
| `signed_tokens` | tokens signed by an identity provider, verified with its keys |
| `principal`, `distinguished_name` | principals, and their mapping from a certificate's name |
| `jaas` | login modules in Java's syntax |
| `plain`, `scram`, `oauth_bearer` | one mechanism each, client and server |
| `acl`, `standard_authorizer` | access control entries, and the decisions based on them |
| `access`, `token_endpoint` | what a client's connections use: one TLS context, and a new SASL exchange for each connection |
"""
