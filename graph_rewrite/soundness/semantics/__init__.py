"""TODO graph_rewrite/soundness/semantics"""
