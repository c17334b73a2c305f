"""Every reachable state of small instances of the tables."""
