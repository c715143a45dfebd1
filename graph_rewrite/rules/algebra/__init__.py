"""TODO graph_rewrite/rules/algebra"""
