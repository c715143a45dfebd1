"""TODO graph_rewrite/rules/substitutions"""
