"""The lease table: its rows, the stores that hold them, and when a row counts as expired."""
