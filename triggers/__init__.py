"""Reactive triggers: work that starts because data became fresher."""
