"""How one step's budget is split among those that read a prompt, so that a short one need not wait for a long one.

The first (the oldest; under `priority` the best) is promised half. The other half goes to the quick, the
shortest first: those that lack less than half of what the first lacks. Then the first takes all it can, and
then the others in their order.

Why half of the length: with the budget shared evenly, letting one that lacks q go beside a first that lacks f
makes it done f - q tokens sooner than behind, and the first q tokens later. The sum is smaller if 2q < f; longer
ones go behind. Whoever comes first has half of each step whatever else arrives, so everyone gets done.
"""

from __future__ import annotations

from sapwood.sched.sequence import Sequence


class Share:
    """`readers`, in their order, run; newcomers are offered what these leave, and what they take they keep.

    So a newcomer may go before a longer one that runs, but takes nothing from another newcomer.
    """

    def __init__(self, budget: int, readers: list[Sequence]) -> None:
        self._left = budget
        self._half = -(-budget // 2)
        self._readers = readers
        self._newcomers: list[tuple[Sequence, int]] = []
        self._sort()

    def offer(self, gap: int) -> int:
        """Tokens that a newcomer that lacks `gap` would get."""
        if not self._readers:
            return min(gap, self._left)
        lacking = self._readers[0].gap
        if 2 * gap < lacking:
            promised = min(lacking, self._half)
            before = sum(s.gap for s in self._quick if s.gap <= gap)
            return max(0, min(gap, self._left - promised - before))
        return max(0, min(gap, self._left - sum(s.gap for s in self._readers)))

    @property
    def open(self) -> bool:
        """Whether a newcomer, if it lacks little enough, would get anything."""
        return self.offer(1) > 0

    def admit(self, newcomer: Sequence) -> None:
        """It takes what it was offered; the first of all takes what the others leave."""
        if not self._readers:
            self._readers = [newcomer]
            self._sort()
            return
        taken = self.offer(newcomer.gap)
        self._left -= taken
        self._newcomers.append((newcomer, taken))

    def given(self) -> list[tuple[Sequence, int]]:
        """Who gets how many tokens, as things stand; only those that get any. Readers first, in their order."""
        if not self._readers:
            return []
        first, left = self._readers[0], self._left
        tokens = {first.id: min(first.gap, self._half)}
        left -= tokens[first.id]
        for sequence in self._quick:
            tokens[sequence.id] = min(sequence.gap, left)
            left -= tokens[sequence.id]
        more = min(first.gap - tokens[first.id], left)
        tokens[first.id] += more
        left -= more
        for sequence in self._readers:
            if sequence.id not in tokens:
                tokens[sequence.id] = min(sequence.gap, left)
                left -= tokens[sequence.id]
        readers = [(s, tokens[s.id]) for s in self._readers if tokens[s.id]]
        return readers + self._newcomers

    def _sort(self) -> None:
        quick = [s for s in self._readers[1:] if 2 * s.gap < self._readers[0].gap]
        self._quick = sorted(quick, key=lambda s: s.gap)
