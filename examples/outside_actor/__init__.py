"""Purchases that somebody outside has to approve: a process here, and the actor in programs of their own, which talk
HTTP."""
