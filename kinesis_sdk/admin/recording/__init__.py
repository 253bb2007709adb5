"""Recordings: the past of every view, in a bounded SQLite database."""
