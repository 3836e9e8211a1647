"""The tables and charts of docs/benchmarks.md, made of the figures in bench/figures.

A bench that compares with a peer notes each row it measures in bench/out/figures; `python -m bench.charts --measured TEXT` takes
these rows into bench/figures, and writes the tables and charts. TEXT says when and on what machine the rows were measured.
"""
