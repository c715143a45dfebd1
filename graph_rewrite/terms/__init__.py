"""TODO graph_rewrite/terms"""
