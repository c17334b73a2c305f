"""The named instances, by what they are of."""
