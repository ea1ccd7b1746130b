"""Options of a cluster: what they mean together, and without one."""

import pytest

from unmask.base.errors import ConfigError
from unmask.cli.where import where_of
from unmask.lab.cluster import Ray


def test_here_or_there():
    assert where_of(None, None, None, None) is None
    assert where_of("ray", None, None, None) == Ray()
    assert where_of("ray", "host:6379", 0.5, 3) == Ray("host:6379", 0.5, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((None, "auto", None, None), "--address is 'auto'; allowed: nothing without --on ray"),
        ((None, None, 1.0, None), "--gpus-per-worker is 1.0; allowed: nothing without --on ray"),
        ((None, None, None, 2), "--workers is 2; allowed: nothing without --on ray"),
        (("slurm", None, None, None), "--on is 'slurm'; allowed: ray"),
    ],
)
def test_what_means_nothing_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        where_of(*given)


def test_a_refused_option_leaves_nothing_behind(run, tmp_path):
    out = tmp_path / "out"
    code, _, err = run("study", "run", "studies/demo.toml", "--out", out, "--on", "ray", "--workers", "0")
    assert code == 2
    assert "workers is 0; allowed: 1 or more" in err
    assert not out.exists()
