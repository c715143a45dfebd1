"""TODO graph_rewrite/rules/movement"""
