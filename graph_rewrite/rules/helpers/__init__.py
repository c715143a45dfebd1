"""TODO graph_rewrite/rules/helpers"""
