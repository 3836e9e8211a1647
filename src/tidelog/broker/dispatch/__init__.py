"""Decodes frames, passes requests to the handlers of their APIs, and encodes the responses."""
