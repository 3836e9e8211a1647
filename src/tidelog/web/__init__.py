"""`tidelog ui`: a page that shows topics by time, and the server of its data. Read-only.

`app` has the paths, `security` decides who may ask, `jobs` runs reads on threads, `endpoints` answers, `page` is what a browser
loads. Each answer is bounded in bytes and time. Only `tidelog ui` imports this, because it needs the extra `ui`.
"""
