"""The web console: a Starlette application, and one page of plain HTML, CSS and JavaScript modules."""
