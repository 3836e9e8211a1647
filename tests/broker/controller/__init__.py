"""The controller of several brokers on one machine."""
