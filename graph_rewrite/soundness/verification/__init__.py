"""TODO graph_rewrite/soundness/verification"""
