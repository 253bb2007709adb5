"""Putting files into a stream, and copying a stream into another stream, with runs that continue after a kill."""
