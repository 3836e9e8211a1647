"""The implementation of `tidelog serve`.

| module | |
|---|---|
| `configuration` | the properties of the file and of the command line; addresses |
| `check` | `--check`: everything that is wrong with them, and what the broker would do |
| `process` | the broker's process from start to end, and its signals |
| `processes`, `one_of_many`, `process_properties`, `process_metrics` | `--processes`: several brokers |
| `service_manager` | reports to systemd |
"""
