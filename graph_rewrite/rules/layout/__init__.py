"""TODO graph_rewrite/rules/layout"""
