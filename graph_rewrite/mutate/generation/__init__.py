"""The mutation generator: mutants found at a small instance of a program, and carried over to the real one."""
