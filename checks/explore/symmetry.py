"""States up to the order of equal places: a sorted representative, and how many states it stands for."""

import math
from itertools import pairwise

import numpy as np

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.lookup import States
from kvescrow.checks.explore.normal_form import NormalForm
from kvescrow.checks.explore.packing import Packing, mask


class Symmetry:
    """The groups of alike places of an instance, on packed states.

    It is sound where the moves treat the places of a group alike; `alike` of the instance says so, and the full count
    that the weights give back is compared with the count of a search without symmetry.
    """

    def __init__(self, instance: Instance, form: NormalForm, packing: Packing) -> None:
        self._groups: list[list[tuple[int, int]]] = []
        for names in instance.alike:
            fields = []
            for name in names:
                digits = packing.of(form.views.of_places([name]))
                fields.append((digits[0].shift, mask(digits) >> digits[0].shift))
            self._groups.append(fields)

    def canonical(self, states: States) -> States:
        """Return the representative of each state: in every group the codes of the places in order."""
        for fields in self._groups:
            codes = [(states >> shift) & mask for shift, mask in fields]
            cleared = states & ~np.int64(sum(mask << shift for shift, mask in fields))
            for low, high in _network(len(codes)):
                codes[low], codes[high] = np.minimum(codes[low], codes[high]), np.maximum(codes[low], codes[high])
            for code, (shift, _) in zip(codes, fields, strict=True):
                cleared |= code << shift
            states = cleared
        return states

    def weights(self, states: States) -> States:
        """Return how many states each representative stands for."""
        total = np.ones(len(states), np.int64)
        for fields in self._groups:
            codes = [(states >> shift) & mask for shift, mask in fields]
            orbit = np.full(len(states), math.factorial(len(codes)), np.int64)
            run = np.ones(len(states), np.int64)
            for before, code in pairwise(codes):
                run = np.where(before == code, run + 1, 1)
                orbit //= run
            total *= orbit
        return total


def _network(size: int) -> list[tuple[int, int]]:
    """Return the comparisons that sort `size` codes: each pass lets the largest of the rest sink to its place."""
    return [(place, place + 1) for end in range(size - 1, 0, -1) for place in range(end)]
