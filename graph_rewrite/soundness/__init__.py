"""Are the rules sound? Instances of every rule, exact and floating-point comparison of their sides, certificates."""
