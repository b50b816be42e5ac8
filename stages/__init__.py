"""Stages: work that starts because an entity changed, or its timer came."""
