"""The main job end to end: real records in, through Kinesis, out again, every one accounted for."""
