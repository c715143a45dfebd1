"""The verification of rules: instances of every rule, exact and floating-point comparison of both sides,
certificates."""
