"""Shortens the stack traces of errors that are meant for users, because Spark shows the stack trace of every exception."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tidelog.errors import TidelogError

P = ParamSpec("P")
R = TypeVar("R")


def short_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that Tidelog's errors are raised again with a stack trace of one line."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TidelogError as error:
            raise error.with_traceback(None) from None

    return call
