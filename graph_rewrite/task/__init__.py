"""TODO graph_rewrite/task"""
