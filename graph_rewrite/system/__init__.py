"""Services of the operating system and of Python's runtime that know nothing of graphs."""
