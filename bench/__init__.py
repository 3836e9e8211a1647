"""Ratios against the real alternatives, each pair measured in one run on one machine; absolute times mean little."""
