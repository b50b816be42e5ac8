"""What can go wrong in a run, as one sentence for the person who started it."""


class BenchError(Exception):
    """A side could not be measured; the measure is reported as failed, and the others go on."""
