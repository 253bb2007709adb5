"""Records that failed for good: hooks and the spool."""
