"""The APIs that are served, one module each. `server.dispatcher` collects them, and ApiVersions is derived from its table."""
