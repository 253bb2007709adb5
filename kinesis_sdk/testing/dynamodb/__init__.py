"""Fake DynamoDB: tables, expressions and conditional writes."""
