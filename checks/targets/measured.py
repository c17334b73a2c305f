"""What a measurement rests on: that its subjects do the work that is to be measured, and nothing else."""


class OtherWork(RuntimeError):
    """A subject did other work than the row says, so that its rate would be of something else."""
