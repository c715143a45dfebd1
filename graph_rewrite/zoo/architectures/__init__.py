"""TODO graph_rewrite/zoo/architectures"""
