"""The one place that holds the version (read by the build and by `kinesis_sdk.__version__`)."""

__version__ = "0.1.0"
