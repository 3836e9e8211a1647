"""The page of `tidelog ui` in a real browser: what people do on it, by mouse and by keys."""
