"""The claims of KIP-32 and KIP-33, measured: which timestamp, which index, what each costs and what goes wrong with it.

Each room is one argument of the documents. A study cuts itself into cases that know nothing of each other (`Case`), measures each
on logs that the storage engine writes (`Measurement`), and says what came out (`Chapter`: tables and plots, with the documents'
claim beside the measured value and every assumption named). A study knows no Spark: `studies.job` runs the cases side by
side, and the tests run them one by one. `python -m studies` runs it all and writes the report.
"""
