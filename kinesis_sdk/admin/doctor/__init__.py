"""Examination of a stream and of an application's lease table: what is wrong, what will be, and what to do about it."""
