"""Putting files into a stream, and copying a stream into another one, with runs that continue after a kill."""
