"""The served APIs, one module for each. `dispatch.dispatcher` collects all of them; ApiVersions lists them."""
