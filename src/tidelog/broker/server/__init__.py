"""The sockets of a broker: accepts connections, reads requests, dispatches them in slices, and writes responses within
budgets.
"""
