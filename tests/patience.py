"""How long a test waits for what must come."""

from __future__ import annotations

PATIENCE_S = 120
"""Longer than what tests wait for takes, also where the machine has ten times as much to do; less than `faulthandler_timeout`."""
