"""Effects, counted while workers are killed and frozen: see `integration.effects.run`."""
