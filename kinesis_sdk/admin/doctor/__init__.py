"""Examination of a stream and of an application's lease table: present and future problems, with their remedies."""
