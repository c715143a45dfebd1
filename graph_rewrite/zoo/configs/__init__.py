"""TODO graph_rewrite/zoo/configs"""
