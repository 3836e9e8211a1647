"""The APIs that are served, one module each; `dispatch` collects them, and ApiVersions is derived from that."""
