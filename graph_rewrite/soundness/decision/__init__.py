"""TODO graph_rewrite/soundness/decision"""
