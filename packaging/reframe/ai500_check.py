"""A ReFrame test: a class of `ai500` on a site's partition, with VFLOPS and quality checked.

    reframe -C site.py -c packaging/reframe -r -S Ai500.problem_class=workstation

References of a site go into `reference` (below), or into a subclass of the site's own.
"""

import shlex

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, run_before, sanity_function, variable
from reframe.utility import typecheck as typ


@rfm.simple_test
class Ai500(rfm.RunOnlyRegressionTest):
    """Train an ensemble, score it, and compare with the site's references."""

    workload = variable(str, value="image_classification")
    problem_class = variable(str, value="smoke")
    runs = variable(str, value="1")  # `valid`: as many trials as a valid result needs
    settings = variable(typ.List[str], value=[])  # `key=value` of ai500.toml
    program = variable(str, value="ai500")

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    maintainers = ["ai500"]
    tags = {"ai500", "performance"}

    @run_before("run")
    def set_commands(self):
        """Run in the test's stage folder, then print the score for the functions below."""
        self.executable = self.program
        options = [
            option for setting in self.settings for option in ("--set", shlex.quote(setting))
        ]
        self.executable_opts = [
            "run", "--out", "run", "--workload", self.workload, "--class", self.problem_class,
            "--runs", self.runs, *options,
        ]  # fmt: skip
        self.postrun_cmds = [f"{self.program} score run --json > score.json"]

    @sanity_function
    def is_complete(self):
        """Require every member of every trial; whether the result is valid, `ai500 check` says."""
        return sn.assert_found(r'"complete": true', "score.json")

    @performance_function("FLOPS")
    def vflops(self):
        """Extract the valid FLOPS (V3 Eq. 7)."""
        return sn.extractsingle(r'"vflops": ([0-9.e+]+)', "score.json", 1, float)

    @performance_function("1")
    def quality(self):
        """Extract the quality of the ensemble."""
        return sn.extractsingle(r'"ensemble_quality": ([0-9.e+-]+)', "score.json", 1, float)
