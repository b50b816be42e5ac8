"""Recovery: puts back what stopped on its way, where the normal claim finds it; it never does the work itself."""
