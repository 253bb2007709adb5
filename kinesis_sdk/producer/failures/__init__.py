"""Records that failed permanently: hooks and the spool."""
