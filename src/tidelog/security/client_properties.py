"""Turns a client's configuration back into Kafka's properties, for places that accept only text, such as Spark's options.

`client_config(client_properties(config))` equals `config`. Secrets are in the result in plain text.
"""

from __future__ import annotations

from tidelog.errors import InvalidArgumentError
from tidelog.security.client_config import ClientConfig, OAuthSettings, SaslSettings
from tidelog.security.jaas import OAUTH_MODULE, PROPERTY, SCRAM_MODULE
from tidelog.security.secret import Secret
from tidelog.security.tls_settings import SANE_CIPHERS, TlsSettings

_OF_13 = "TLS_AES_256_GCM_SHA384"
"""A cipher suite of TLS 1.3. It stands for an empty list of TLS 1.2 suites."""


def client_properties(config: ClientConfig) -> dict[str, str]:
    """Return the properties; empty for a plaintext configuration. Raises InvalidArgumentError if the configuration has a
    callback, which cannot be text.
    """
    if config.tls is None and config.sasl is None:
        return {}
    found: dict[str, str | Secret | None] = {"security.protocol": config.protocol}
    if config.tls is not None:
        found |= _tls(config.tls)
    if config.sasl is not None:
        found |= {"sasl.mechanism": config.sasl.mechanism} | _sasl(config.sasl)
    return {name: one.reveal() if isinstance(one, Secret) else one for name, one in found.items() if one is not None}


def _tls(tls: TlsSettings) -> dict[str, str | Secret | None]:
    return {
        "ssl.enabled.protocols": ",".join(tls.protocols),
        "ssl.cipher.suites": None if tls.ciphers == SANE_CIPHERS else tls.ciphers or _OF_13,
        "ssl.truststore.location": tls.trust_file,
        "ssl.truststore.certificates": tls.trust_pem,
        "ssl.keystore.location": tls.chain_file,
        "ssl.key.location": tls.key_file,
        "ssl.keystore.certificate.chain": tls.chain_pem,
        "ssl.keystore.key": tls.key_pem,
        "ssl.key.password": tls.key_password,
        "ssl.endpoint.identification.algorithm": "https" if tls.checks_host else "none",
        "enable.ssl.certificate.verification": "true" if tls.verifies else "false",
    }


def _sasl(sasl: SaslSettings) -> dict[str, str | Secret | None]:
    if sasl.oauth is not None:
        return _oauth(sasl.oauth)
    if sasl.token_auth:
        options = f"username={_quoted(sasl.username)} password={_quoted(sasl.password.reveal())} tokenauth=true"
        return {PROPERTY: Secret(f"{SCRAM_MODULE} required {options};")}
    return {"sasl.username": sasl.username, "sasl.password": sasl.password}


def _oauth(oauth: OAuthSettings) -> dict[str, str | Secret | None]:
    if oauth.callback is not None:
        raise InvalidArgumentError(
            "oauth_cb is a function and cannot be passed as a text option: use sasl.oauthbearer.token.endpoint.url"
        )
    if oauth.url is not None:
        return {
            "sasl.oauthbearer.token.endpoint.url": oauth.url,
            "sasl.oauthbearer.client.id": oauth.client_id,
            "sasl.oauthbearer.client.secret": oauth.client_secret,
            "sasl.oauthbearer.scope": oauth.scope,
        }
    options = f"unsecuredLoginStringClaim_sub={_quoted(oauth.unsecured_name or '')}"
    return {PROPERTY: f'{OAUTH_MODULE} required {options} unsecuredLoginLifetimeSeconds="{oauth.unsecured_lifetime_s}";'}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
