"""Fake Kinesis: streams, shards, records, limits and enhanced fan-out."""
