"""TODO graph_rewrite/rules/fusion"""
