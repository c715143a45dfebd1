"""The judgement of all results of a model, side by side."""
