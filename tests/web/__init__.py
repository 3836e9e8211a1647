"""Tests of the server of `tidelog ui`."""
