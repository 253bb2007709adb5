"""Codecs that make aggregates smaller: ``ProducerConfig(compression="zstd")``; see `docs/compression.md`.

Nothing here is imported by programs: producers name a codec, and readers find the name in the record.
"""
