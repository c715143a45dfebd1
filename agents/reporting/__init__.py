"""TODO agents/reporting"""
