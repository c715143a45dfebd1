"""TODO graph_rewrite/rewriting"""
