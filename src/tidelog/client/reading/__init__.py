"""Reads from a cluster: offsets for times, the offsets to read for a time range, one partition's batches, sizes and settings of
topics.
"""
