"""Output for people and scripts.

| module | owns |
|---|---|
| `layout` | tables, sizes and escapes for people |
| `output` | the destination: standard output, or a file that appears when it is complete |
| `record_writers` | records as text and CSV |
| `terminal` | the width of the terminal, and whether it shows colours |
| `notices` | notes on stderr, separate from the answer |
| `missing` | notes and JSON lines for missing records of a folder |
| `progress_bar` | a bar on a terminal's stderr for long work |
| `log_lines` | a broker's log |
"""
