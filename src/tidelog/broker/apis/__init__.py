"""The served APIs, one module for each. `server.dispatcher` collects them in a table, from which ApiVersions is answered."""
