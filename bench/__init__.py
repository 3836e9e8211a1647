"""Benchmarks against the real alternatives. Each pair is measured in one run on one machine; the result is a ratio, because
absolute times mean little.
"""
