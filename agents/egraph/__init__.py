"""TODO agents/egraph"""
