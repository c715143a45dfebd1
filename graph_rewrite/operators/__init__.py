"""TODO graph_rewrite/operators"""
