"""Repaired mutants as rules: data with a certificate, which apply where the program and the shapes are those proved."""

from graph_rewrite.mutate.mutant_rules.program_json import MalformedMutantError
from graph_rewrite.mutate.mutant_rules.rule import ORIGIN, MutantRule, mutant_rule, read_mutant_rules

__all__ = ["ORIGIN", "MalformedMutantError", "MutantRule", "mutant_rule", "read_mutant_rules"]
