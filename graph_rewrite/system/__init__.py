"""TODO graph_rewrite/system"""
