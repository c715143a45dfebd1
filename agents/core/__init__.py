"""TODO agents/core"""
