"""TODO graph_rewrite/rules/matmul"""
