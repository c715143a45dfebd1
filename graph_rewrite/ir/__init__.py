"""TODO graph_rewrite/ir"""
