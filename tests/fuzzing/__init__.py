"""Fuzzing: damaged and hostile models that are loaded (`loader`), and random valid models that are optimised
(`optimisations`)."""
