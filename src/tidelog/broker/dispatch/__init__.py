"""From a frame to the handler of its API, and from the handler's answer to the bytes of the response."""
