"""Substitutions that are data, generated or imported from TASO and TENSAT, as rules."""
