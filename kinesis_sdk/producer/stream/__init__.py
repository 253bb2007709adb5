"""One stream: from user records to requests, and from responses to results. No threads, no clock, no network."""
