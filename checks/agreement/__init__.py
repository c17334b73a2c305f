"""The same instances in other model checkers, which share no code with this project: equal verdicts, equal counts."""
