"""Codecs that make aggregates smaller: ``ProducerConfig(compression="zstd")``; see `docs/compression.md`.

Programs import nothing from here: producers name a codec, and readers find the name in the record.
"""
