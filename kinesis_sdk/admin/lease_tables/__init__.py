"""Lease tables as tools see them: one interface, for DynamoDB and for SQL databases."""
