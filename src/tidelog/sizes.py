"""Sizes in bytes as text."""

from __future__ import annotations


def show_size(size_bytes: int) -> str:
    """Return a size in readable form: 999 B, 1.5 KiB, 12.0 GiB."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
