"""Reading shards."""

from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult, Position
from kinesis_sdk.consumer.fetch.polling import PollingFetcher

__all__ = ["FetchResult", "Fetcher", "PollingFetcher", "Position"]
