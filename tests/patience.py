"""How long a test waits for an event that must occur."""

from __future__ import annotations

PATIENCE_S = 120
"""Longer than any awaited event takes, even on a machine with ten times the load; less than `faulthandler_timeout`."""
