"""The fleet live in a terminal (Textual, extra ``tui``)."""
