"""Substitutions that are data, generated or imported from TASO's file, as rules."""
