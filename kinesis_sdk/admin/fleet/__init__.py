"""The view of a fleet: the owner of each shard, its lag, and its problems. Read from the lease table and the stream."""
