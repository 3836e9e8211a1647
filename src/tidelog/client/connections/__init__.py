"""To a cluster: addresses, TLS and SASL, one blocking socket, who leads what, coordinators, which errors are tried again."""
