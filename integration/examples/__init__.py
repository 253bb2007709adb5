"""The programs and files of `examples/`, each run or validated as the first lines of the file tell a reader to."""
