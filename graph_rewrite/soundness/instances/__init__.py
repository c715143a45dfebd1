"""Instances of a rule: source graphs at which it applies, built from its pattern by choices drawn without
repetition."""
