"""The worker without threads: lease loops, shard consumers, stall detection, and the factory of fetchers."""

from kinesis_sdk.consumer.engine.stepped import stepped_engine
from kinesis_sdk.consumer.until import until_moment

__all__ = ["stepped_engine", "until_moment"]
