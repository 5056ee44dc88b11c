"""Datasets: face tracks with their sound, read clip by clip."""
