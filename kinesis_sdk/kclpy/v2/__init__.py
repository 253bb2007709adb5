"""Processors of version 2: inputs as objects, ``shutdown`` with a reason."""
