"""Requests and limits from real use."""
