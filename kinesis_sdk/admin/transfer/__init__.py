"""Putting files into a stream, and copying a stream into another one, so that a killed run can be continued."""
