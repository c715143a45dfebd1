"""TODO envs/graph_rewrite"""
