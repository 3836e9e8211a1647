"""How answers reach people and scripts.

| module | owns |
|---|---|
| `layout` | tables, sizes and escapes for people |
| `output` | where an answer goes: standard output, or a file that appears only when it is whole |
| `record_writers` | records as text, JSON lines, Arrow or Parquet |
| `notices` | what is worth saying on stderr besides the answer |
| `missing` | notes and JSON lines for what a folder lacks |
| `progress_bar` | a bar on a terminal's stderr for work that takes long |
| `log_lines` | what a broker's operator reads |
"""
