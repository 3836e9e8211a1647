"""A token of a token endpoint, by client credentials over HTTPS. Redirections are refused: the secret goes to nobody else."""

from __future__ import annotations

import urllib.request
from typing import Any, Final
from urllib.error import HTTPError

from tidelog.errors import AuthenticationError
from tidelog.security.client_config import OAuthSettings
from tidelog.security.oauth_bearer import MAX_TOKEN_RESPONSE_BYTES, read_token_response, token_request, without_user
from tidelog.security.secret import Secret

TIMEOUT_S: Final = 10.0


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch_token(oauth: OAuthSettings) -> tuple[Secret, float]:
    """Return a token, and for how many seconds it is good, 0 where that is not said. Raises AuthenticationError."""
    assert oauth.url is not None
    wanted = token_request(oauth.url, oauth.client_id, oauth.client_secret, oauth.scope)
    request = urllib.request.Request(wanted.url, wanted.body, wanted.headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirection).open(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(MAX_TOKEN_RESPONSE_BYTES)
    except HTTPError as error:
        with error:
            raise AuthenticationError(
                "the token endpoint refused", path=without_user(oauth.url), found=f"HTTP status {error.code}"
            ) from None
    except (OSError, ValueError) as error:
        # Other errors of urllib's, of an address for one, show all of it.
        reason = getattr(error, "reason", None) or type(error).__name__
        raise AuthenticationError(f"the token endpoint cannot be reached: {reason}", path=without_user(oauth.url)) from None
    return read_token_response(oauth.url, body)
