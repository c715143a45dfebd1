"""Source graphs at which the verifier looks at a rule beside those that it makes from the rule's pattern, in modules by
subject."""

from graph_rewrite.soundness.cases.lookup import cases_of

__all__ = ["cases_of"]
