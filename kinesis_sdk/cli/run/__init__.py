"""`kinesis-sdk run`: supervised worker processes."""
