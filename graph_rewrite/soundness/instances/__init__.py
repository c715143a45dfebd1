"""TODO graph_rewrite/soundness/instances"""
