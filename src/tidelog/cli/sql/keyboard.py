"""Reads the keys that are typed while the shell executes a statement.

The terminal stays in raw mode between prompts, so Ctrl-C is always a key and never a signal. Even if it is typed right after
Enter, it is not lost: either the prompt reads it and passes it on, or this module reads it. Other keys are kept, in order, for
the next prompt.
"""

from __future__ import annotations

import os
import select
import signal
import time
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

_CANCELS = (Keys.ControlC, Keys.SIGINT)
"""Ctrl-C, and the signal that another process sent while the prompt ended."""

_SIGNALS = {Keys.ControlZ: signal.SIGTSTP, Keys.ControlBackslash: signal.SIGQUIT}
"""Keys for which a terminal sends a signal if it is not in raw mode."""


class Keyboard:
    """The keys of the terminal that a prompt reads. Use it as a context manager, around prompts and statements.

    A SIGINT counts as a key, too: it is kept with the keys that were typed ahead until the prompt or `wait` takes it. The prompt
    must not handle the signal itself, because it would lose a signal that arrives while the prompt ends.
    """

    def __init__(self, prompt: Application[str]) -> None:
        self._prompt = prompt
        self._terminal = prompt.input
        self._stack = ExitStack()

    def __enter__(self) -> Keyboard:
        self._wakes, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stack.callback(os.close, self._wakes)
        self._stack.callback(os.close, self._woken)
        self._stack.enter_context(self._terminal.raw_mode())
        previous = signal.signal(signal.SIGINT, self._interrupted)
        self._stack.callback(signal.signal, signal.SIGINT, previous)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def wait(self, future: Future[Any], timeout_s: float | None = None) -> None:
        """Wait for a future, at most `timeout_s`. Raises KeyboardInterrupt when Ctrl-C is typed, or has been typed before."""
        woken = self._woken
        future.add_done_callback(lambda _: os.write(woken, b"."))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._read()
            left = None if deadline is None else deadline - time.monotonic()
            if future.done() or (left is not None and left <= 0):
                return
            files = [self._wakes] if self._terminal.closed else [self._wakes, self._terminal.fileno()]
            if self._wakes in select.select(files, [], [], left)[0]:
                os.read(self._wakes, 1 << 10)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        # Raising here could leave a query that nobody waits for. The signal becomes a key.
        store_typeahead(self._terminal, [KeyPress(Keys.ControlC)])
        os.write(self._woken, b".")
        loop = self._prompt.loop
        if loop is not None:
            with suppress(RuntimeError):  # The prompt has just ended.
                loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._prompt.key_processor.feed_multiple(get_typeahead(self._terminal))
        self._prompt.key_processor.process_keys()

    def _read(self) -> None:
        keys = [*get_typeahead(self._terminal), *self._terminal.read_keys()]
        store_typeahead(self._terminal, [one for one in keys if one.key not in (*_CANCELS, *_SIGNALS)])
        pressed = {one.key for one in keys}
        for key, number in _SIGNALS.items():
            if key in pressed:
                with self._terminal.cooked_mode():
                    os.kill(0, number)
        if pressed.intersection(_CANCELS):
            raise KeyboardInterrupt
