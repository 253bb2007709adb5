"""Reading shards: polling ahead of the handler, and enhanced fan-out."""

from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.fanout import FanOutFetcher
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult
from kinesis_sdk.consumer.fetch.polling import PollingFetcher
from kinesis_sdk.consumer.fetch.prefetch import Prefetcher
from kinesis_sdk.consumer.fetch.read_rate import ReadRate, StreamTraffic, TipIdle
from kinesis_sdk.consumer.fetch.registration import ConsumerRegistration, FanOutClient

__all__ = [
    "ByteBudget",
    "ConsumerRegistration",
    "FanOutClient",
    "FanOutFetcher",
    "FetchResult",
    "Fetcher",
    "PollingFetcher",
    "Prefetcher",
    "ReadRate",
    "StreamTraffic",
    "TipIdle",
]
