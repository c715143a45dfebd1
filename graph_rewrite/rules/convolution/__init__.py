"""TODO graph_rewrite/rules/convolution"""
