"""`tidelog ui`: a page that shows topics by time, and the server of its data. Read-only.

`app` has the paths, `security` decides which requests are allowed, `jobs` runs reads on threads, `endpoints` has a function for
each path, and `page` has the files that a browser loads. Each response is limited in bytes and time. Only `tidelog ui` imports
this package, because it needs the extra `ui`.
"""
