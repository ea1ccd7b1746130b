"""Workers compute with what the driver computes with."""

import pytest

from unmask.base.errors import ConfigError
from unmask.lab.cluster.identity import check_identity, identity


def test_the_same_code_passes_and_other_code_is_named():
    here = identity()
    check_identity(here, here, "worker-0")
    check_identity({**here, "host": "elsewhere", "threads": "64"}, here, "worker-0")
    with pytest.raises(ConfigError, match=r"worker-3 on node7 .*torch 1\.0 there, .*; code f00 there"):
        check_identity({**here, "host": "node7", "torch": "1.0", "code": "f00"}, here, "worker-3")
