"""Translates OpenSSL's failures into errors that a user can act on. `place` is the peer's host:port.

| OpenSSL's failure | error |
|---|---|
| the peer's certificate is for a different host, not trusted, or out of date | AuthenticationError |
| an alert about our certificate, or because we have none | AuthenticationError |
| not a TLS record; no common version or cipher | SecurityProtocolError |
"""

from __future__ import annotations

import ssl
from typing import Final

from tidelog.errors import AuthenticationError, SecurityProtocolError, TidelogError

_OTHER_HOST: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_OUT_OF_DATE: Final = (9, 10)
_WRONG_KIND: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "PACKET_LENGTH_TOO_LONG",
)
_NOTHING_COMMON: Final = (
    "ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "NO_SHARED_CIPHER",
    "NO_PROTOCOLS",
    "INSUFFICIENT_SECURITY",
)
_ABOUT_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")


def tls_error(error: OSError, place: str, *, has_key: bool) -> TidelogError | None:
    """Return the error for a failed handshake or a closed connection, None if `error` is not about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return untrusted(error, place)
    return alert_error(error, place, has_key=has_key)


def untrusted(error: ssl.SSLCertVerificationError, place: str) -> AuthenticationError:
    """Return the reason why the peer's certificate is rejected."""
    if error.verify_code in _OTHER_HOST:
        return AuthenticationError(
            "the broker's certificate is for a different host (to skip this check, set ssl.endpoint.identification.algorithm=)",
            path=place,
            found=error.verify_message.rstrip("."),
        )
    if error.verify_code in _OUT_OF_DATE:
        return AuthenticationError(
            "the broker's certificate has expired or is not valid yet", path=place, found=error.verify_message
        )
    return AuthenticationError(
        "the broker's certificate is not signed by a trusted authority (set ssl.truststore.location or ssl.ca.location)",
        path=place,
        found=error.verify_message,
    )


def alert_error(error: OSError, place: str, *, has_key: bool) -> TidelogError | None:
    """Return the error for a TLS alert, None if `error` is not an alert. `has_key` is whether we presented a certificate."""
    reason = (getattr(error, "reason", None) or "").upper() if isinstance(error, ssl.SSLError) else ""
    if any(word in reason for word in _WRONG_KIND):
        return no_tls(place)
    if any(word in reason for word in _NOTHING_COMMON):
        return SecurityProtocolError(
            "the broker supports none of the client's TLS versions and ciphers", path=place, expected="TLS 1.2 or 1.3"
        )
    if any(word in reason for word in _ABOUT_CERTIFICATE):
        what = (
            "the broker refuses the client's certificate"
            if has_key
            else "the broker refuses TLS: it requires a client certificate (ssl.keystore.location) or different ciphers"
        )
        return AuthenticationError(what, path=place, found=reason.lower().replace("_", " "))
    return None


def no_tls(place: str) -> SecurityProtocolError:
    """Return the error for a port that does not speak TLS."""
    return SecurityProtocolError(
        "the port does not speak TLS", path=place, found="PLAINTEXT or SASL_PLAINTEXT", expected="SSL or SASL_SSL"
    )
