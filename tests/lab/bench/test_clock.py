"""Times of work measured in turns."""

from unmask.lab.bench import Effort, Stopwatch, Times, interleaved


class Ticks:
    """A clock that work turns on."""

    def __init__(self):
        self.time, self.ran = 0.0, []

    def work(self, name, *seconds):
        lasts = iter(seconds)

        def run():
            self.ran.append(name)
            self.time += next(lasts)

        return run

    @property
    def clock(self):
        return Stopwatch(now=lambda: self.time)


def test_each_gets_the_median_and_the_ends_of_its_own_seconds():
    ticks = Ticks()
    works = {"a": ticks.work("a", 100, 1, 5, 2), "b": ticks.work("b", 100, 40, 10, 30)}
    found = interleaved(works, ticks.clock, Effort(warm_up=1, repeats=3))
    assert found == {"a": Times(2, 1, 5, 3), "b": Times(30, 10, 40, 3)}


def test_rounds_run_forwards_and_backwards_in_turns():
    ticks = Ticks()
    works = {name: ticks.work(name, *[1] * 9) for name in "abc"}
    interleaved(works, ticks.clock, Effort(warm_up=1, repeats=3))
    assert "".join(ticks.ran) == "abc" + "abc" + "cba" + "abc"


def test_the_device_is_waited_for_before_and_after_the_work():
    seen = []
    clock = Stopwatch(now=lambda: float(len(seen)), wait=lambda: seen.append("wait"))
    assert clock.seconds(lambda: seen.append("work")) == 2
    assert seen == ["wait", "work", "wait"]


def test_the_time_of_one_out_of_many():
    assert Times(8, 4, 12, 3).per(4) == Times(2, 1, 3, 3)


def test_before_and_after_are_one_time_between():
    assert Times(2, 1, 4, 3).and_later(Times(4, 3, 9, 5)) == Times(3, 1, 9, 8)
