"""Rewriting: patterns and rules, where they match a graph, and the candidates that come of it.

Modules, lowest first: `patterns` and `replacement` are the two sides of a rule; `match` is an occurrence and `matching`
finds it, which `prefilter` makes cheap; `rule` is the base class and `digests` identifies its code; `building` turns a
match into a site and counts exceptions of rules (`faults`); `candidates` groups `sites`, and `enumerator` keeps the
`listing` of a graph up to date over rewrites.
"""
