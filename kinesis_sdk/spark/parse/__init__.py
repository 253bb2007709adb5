"""Values of records as typed columns: the reader parses them, so that Spark gets only the requested columns."""
