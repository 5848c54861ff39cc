"""What requests could share, were there a way to: the beginnings of their prompts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from vmkv.traces import Request

BLOCK_TOKENS = 512  # of which a hash id is


def shared_tokens(one: Request, other: Request) -> int:
    """Tokens that two prompts begin with alike: those of the leading blocks with equal ids. Where
    that is the partly empty last block of one prompt, the shorter prompt counts."""
    pairs = zip(one.hash_ids, other.hash_ids, strict=False)
    blocks = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return min(blocks * BLOCK_TOKENS, one.prompt_tokens, other.prompt_tokens)


class Prefixes:
    """All beginnings of prompts that came up to now.

    >>> prefixes = Prefixes()
    >>> prefixes.add(Request(0, 1, 1100, 5, hash_ids=(7, 8, 9)))
    0
    >>> prefixes.add(Request(1, 2, 1300, 5, hash_ids=(7, 8, 4)))
    1024
    """

    def __init__(self) -> None:
        # A tree: (node, hash id) -> node and how many tokens of the longest prompt through it.
        self._nodes: dict[tuple[int, int], int] = {}
        self._tokens: list[int] = [0]

    def add(self, request: Request) -> int:
        """Add a prompt; how many tokens it begins with that one before it began with, too."""
        node = shared = 0
        for block, hash_id in enumerate(request.hash_ids, 1):
            tokens = min(block * BLOCK_TOKENS, request.prompt_tokens)
            child = self._nodes.get((node, hash_id))
            if child is None:
                child = self._nodes[node, hash_id] = len(self._tokens)
                self._tokens.append(tokens)
            else:
                shared = max(shared, min(tokens, self._tokens[child]))
                self._tokens[child] = max(self._tokens[child], tokens)
            node = child
        return shared


def most_shared_tokens(request: Request, others: Iterable[Request]) -> int:
    """The most that a prompt shares with one of the others."""
    return max((shared_tokens(request, other) for other in others), default=0)
