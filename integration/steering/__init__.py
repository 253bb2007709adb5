"""Random changes of a live lease table, and the accounting of what they cause. Used with our workers and with Java workers."""
