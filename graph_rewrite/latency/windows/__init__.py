"""TODO graph_rewrite/latency/windows"""
