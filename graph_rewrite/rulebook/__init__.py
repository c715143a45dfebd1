"""TODO graph_rewrite/rulebook"""
