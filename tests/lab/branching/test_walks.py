"""Walks in the graph: where each ends, what it takes, and what its own payer had run."""

import numpy as np
import pytest

from unmask.base.errors import ContractError
from unmask.lab.branching.graph import BranchGraph


def chain(graph, payer, *passes, onto=None):
    """Nodes whose steps take so many row-forwards, with an end of their own or onto a known node. Returns the first."""
    nodes = [graph.add(payer) for _ in passes]
    last = graph.add(payer) if onto is None else onto
    for node, took, following in zip(nodes, passes, [*nodes[1:], last], strict=True):
        graph.passes[node], graph.next[node] = took, following
    if onto is None:
        graph.ends[last] = np.array([payer])
    return nodes[0]


def test_a_walk_is_followed_to_its_end_and_paid_for_by_who_had_it_run():
    """Branch 0 ran five steps; branch 1 two, met 0's fourth; branch 2 met 1's second; 3 found 0's first known."""
    graph = BranchGraph()
    zero = chain(graph, 0, 1, 1, 3, 1, 2)
    one = chain(graph, 1, 1, 4, onto=zero + 3)
    two = chain(graph, 2, 1, 1, 2, onto=one + 1)
    end_N, total_N, paid_N = graph.totals()
    assert [int(graph.ends[end_N[node]][0]) for node in (zero, one, two)] == [0, 0, 0]
    assert total_N[[zero, zero + 4, one, two]].tolist() == [8, 2, 1 + 4 + 3, 4 + 4 + 3]
    assert paid_N[[zero, one, two]].tolist() == [8, 5, 4]


def test_long_walks():
    graph = BranchGraph()
    first = chain(graph, 0, *range(1, 1000))
    end_N, total_N, paid_N = graph.totals()
    assert total_N[first : first + 999].tolist() == [sum(range(i, 1000)) for i in range(1, 1000)]
    assert (total_N == paid_N).all()
    assert set(end_N) == {first + 999}


def test_a_branch_without_an_end_is_an_error():
    graph = BranchGraph()
    graph.add(0)
    with pytest.raises(ContractError, match="no end"):
        graph.totals()
