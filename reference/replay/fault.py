"""What is raised when a replay contradicts itself."""


class ReplayFault(AssertionError):
    """An invariant of the run is broken: a fault of the implementation, never of the user's input."""
