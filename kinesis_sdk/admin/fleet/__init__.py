"""The view of a fleet: who owns which shard, how far behind it is, and what is wrong. Read from the lease table and the stream."""
