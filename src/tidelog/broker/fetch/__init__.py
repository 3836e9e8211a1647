"""Handles fetches for `apis/fetch`: sessions, reading partitions, waiting for records, and conversion to older message
formats.
"""
