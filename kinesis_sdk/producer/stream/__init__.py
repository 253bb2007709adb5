"""One stream: from user records to requests, and what responses mean. No threads, no clock, no network."""
