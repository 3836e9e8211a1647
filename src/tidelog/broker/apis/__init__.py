"""The served APIs, one module for each. `dispatch.dispatcher` collects them in a table, from which ApiVersions is answered."""
