"""Whole runs on workers, without any: what is begun when, and that nothing is begun twice."""

from concurrent.futures import Future

from unmask.api.request import Request
from unmask.lab.cluster.cache import ClusterCache
from unmask.lab.run.judging import AnswerTexts
from unmask.methods import LLaDA


class Pool:
    """Answers at once, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def submit(self, function, spec, policy, part, **options):
        self.asked.append((policy, [draw for _, draw in part.rows]))
        future = Future()
        future.set_result(([], AnswerTexts({})))
        return future


def test_what_is_foreseen_is_begun_at_once_and_only_once(tiny_study):
    pool = Pool()
    request = Request("p", (0,) * 4, (False,) * 4, 1, (0, 4))
    requests = {"validation": [request], "evaluation": [request]}
    cache = ClusterCache(pool, tiny_study, tiny_study.models[0], requests, lambda policies: None)
    one, other = LLaDA(2), LLaDA(4)
    cache.foresee([one, other, one], "validation")
    assert pool.asked == [(one, [0]), (other, [0])]
    cache.foresee([one], "validation")
    for policy in (one, other, one):
        cache.decode(policy, "validation")
    assert len(pool.asked) == 2
    assert cache.policies == 2
    cache.decode(one, "evaluation")
    cache.decode(one, "validation", draws=2)
    assert pool.asked[2:] == [(one, [0]), (one, [0, 1])]
