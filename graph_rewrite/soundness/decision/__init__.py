"""The decision whether two graphs compute the same function: identity testing over a prime field, proofs by z3,
and counterexamples."""
