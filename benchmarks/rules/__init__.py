"""Gains of rules: on single layers, as lists on whole models, and in the blocked layout."""
