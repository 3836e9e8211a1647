"""Measures the claims of KIP-32 and KIP-33: which timestamp and which index to use, what each costs, and how each fails.

Each subpackage studies one argument of the documents. A study consists of independent cases (`Case`). It measures each on logs
that the storage engine writes (`Measurement`), and presents the results (`Chapter`: tables and plots that show the documents'
claims beside the measured values, and list every assumption). A study does not depend on Spark: `studies.job` runs the cases in
parallel, and the tests run them one by one. `python -m studies` runs everything and writes the report.
"""
