"""Tests of kinesis_sdk.compression."""
