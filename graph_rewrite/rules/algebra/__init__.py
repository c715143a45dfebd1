"""Rewrites of element-wise operators and of operators that do nothing: elimination, algebra of sums and products,
element-wise functions and Concat."""
