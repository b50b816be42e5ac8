"""Programs that are only checked for types, never run: the whole public API used well, and used wrongly."""
