"""DynamoDB Streams as the source of a worker."""
