"""TODO graph_rewrite/soundness/cases"""
