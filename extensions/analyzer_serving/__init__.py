"""Serving engines: their memory worked out, and as they start, emulated."""
