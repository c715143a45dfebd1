"""TODO graph_rewrite/rules/attention"""
