"""The domains that graphs are evaluated over: a prime field, and the reals as terms of z3; and the interpretation of
floating-point constants as exact numbers."""
