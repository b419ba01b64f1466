"""The checks of `pdd doctor`: facts in, findings out. Only `gather` and `cluster` do I/O."""
