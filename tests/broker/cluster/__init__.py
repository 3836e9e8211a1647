"""Tests of `tidelog.broker.cluster`."""
