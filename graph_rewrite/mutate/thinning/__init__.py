"""Thin instances: subprograms with their real batches and images but few channels, at which mutants are judged."""

from graph_rewrite.mutate.thinning.judge import MutantJudge

__all__ = ["MutantJudge"]
