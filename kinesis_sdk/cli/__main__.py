"""``python -m kinesis_sdk.cli`` is the ``kinesis-sdk`` command."""

from kinesis_sdk.cli import main

main()
