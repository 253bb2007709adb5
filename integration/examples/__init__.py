"""The programs and files of `examples/`, each run or validated as a reader of its first lines would."""
