"""One shard: its state, its reader, the delivery of its records to the handler, and its checkpoints."""
