"""TODO graph_rewrite/soundness/domains"""
