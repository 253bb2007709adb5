"""The worker without threads: the lease loops, the shard consumers, and what makes their readers."""
