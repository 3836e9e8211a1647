"""The served APIs, one module for each. `dispatch.dispatcher` has the table of all of them, which ApiVersions lists."""
