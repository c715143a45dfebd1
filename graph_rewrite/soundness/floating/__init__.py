"""TODO graph_rewrite/soundness/floating"""
