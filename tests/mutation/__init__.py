"""Breaks the rules of docs/sources.md one by one and looks whether the tests of their rows fail: `python -m tests.mutation`."""
