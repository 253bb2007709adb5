"""The worker without threads: lease loops, shard consumers, stall detection, and the factory of fetchers."""
