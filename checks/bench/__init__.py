"""Measurements beside a peer, both in one run."""
