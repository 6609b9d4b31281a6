"""Reading and writing: archives, text at NumPy's speed, memory-mapped columns, the cache."""
