"""Processors of version 3: ``lease_lost`` and ``shard_ended`` instead of ``shutdown``."""
