"""A request while it is being served.

| read | for |
|---|---|
| `listeners` | the listener that accepted the request |
| `request` | the request as a handler sees it, and the outcomes of a handler |
| `slices`, `wide_requests` | long requests, handled in slices; requests with very many elements |
| `api_error` | a refusal with Kafka's error code |
"""
