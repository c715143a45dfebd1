"""TODO graph_rewrite/delivery"""
