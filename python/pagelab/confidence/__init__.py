"""Confidence intervals: of means, of medians, and of shares."""
