"""Confidence intervals: of means and of medians."""
