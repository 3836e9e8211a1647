"""Object storage for tests: `server.py` runs S3Proxy, `front.py` counts the requests to it, delays them and makes them fail."""
