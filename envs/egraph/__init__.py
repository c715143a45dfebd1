"""TODO envs/egraph"""
