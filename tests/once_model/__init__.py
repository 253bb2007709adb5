"""Exhaustive and random models of how a producer's repetitions are recognized: every order of events, for few records.

`layout` has the shards over time, `producing` all logs that a producer can leave in the stream, `reading` what a reader
delivers of a log, `search` combines them, and `seconds` is a model of the constants in seconds.
"""
