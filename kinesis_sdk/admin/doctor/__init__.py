"""Examination of a stream and of an application's lease table: problems now and later, and what to do about them."""
