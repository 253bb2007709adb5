"""User records and the Kinesis records that hold them."""
