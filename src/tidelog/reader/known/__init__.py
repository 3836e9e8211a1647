"""Segments whose properties are known before they are read (`known_segment.py`)."""
