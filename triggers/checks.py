"""Static checks over the triggers of all tasks."""
