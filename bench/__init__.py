"""Ratios against the real peers, each pair in one run on one machine; absolute times mean little."""
