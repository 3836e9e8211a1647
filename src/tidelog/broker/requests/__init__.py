"""A request while it is served.

| read | for |
|---|---|
| `listeners` | the listener that accepted it |
| `request` | what a handler sees of it, and the outcomes of a handler |
| `slices`, `wide_requests` | long requests, in slices of the loop; requests with very many elements |
| `api_error` | a refusal with Kafka's error code |
"""
