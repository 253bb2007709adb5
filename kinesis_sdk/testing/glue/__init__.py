"""The fake Glue Schema Registry."""
