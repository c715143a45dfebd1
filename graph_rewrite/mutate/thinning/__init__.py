"""Thin instances: subprograms with their real batches and images but few channels, at which mutants are judged."""

from graph_rewrite.mutate.thinning.judge import Judge

__all__ = ["Judge"]
