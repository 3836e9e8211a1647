"""Replicas: rules by themselves, and followers of a leader that is simulated."""
