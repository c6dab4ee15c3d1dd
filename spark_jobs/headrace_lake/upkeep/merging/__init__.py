"""Merging of small files: which, how, and the commit."""
