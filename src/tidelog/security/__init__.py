"""PURE. Authentication and encryption: TLS settings and contexts, SASL mechanisms as state machines, secrets. No loops, and no
sockets but those of `token_endpoint`.

| module | owns |
|---|---|
| `secret` | a text that is never shown |
| `client_config` | a client's properties, of Kafka's and of librdkafka's names |
| `tls_settings`, `tls_context` | `ssl.*`; contexts made of them, and made again when files change |
| `tls_errors` | what a handshake that failed means |
| `signed_tokens` | tokens of an identity provider, judged by its keys |
| `principal`, `distinguished_name` | principals, and their mapping from the name of a certificate |
| `jaas` | login modules, as Java's tools write them |
| `plain`, `scram`, `oauth_bearer` | each mechanism, the client's half and the server's |
| `acl`, `standard_authorizer` | access control entries, and who may do what by them |
| `access`, `token_endpoint` | a client's configuration at work: a context, and a new exchange for each connection |
"""
