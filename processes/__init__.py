"""Processes: work that starts because the previous step decided so."""
