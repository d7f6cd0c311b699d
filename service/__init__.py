"""Horocycle: online classification in the Poincaré ball.

The arrow is one way: errors → geometry → learners → certificates → app. Mathematics imports no web.
"""
