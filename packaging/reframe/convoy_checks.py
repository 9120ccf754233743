# SPDX-License-Identifier: Apache-2.0
"""ReFrame tests of an installed convoy, for acceptance and regression of a system.

    reframe -C SETTINGS.py -c packaging/reframe/convoy_checks.py -r [-S modules=convoy]

The program is `convoy` on PATH, after the modules are loaded. On a system whose launcher starts MPI programs (settings of the
site; mpirun.py has those of a single machine).
"""
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_before, sanity_function, variable


class ConvoyTest(rfm.RunOnlyRegressionTest):
    """Trains an example by its name."""
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "convoy"
    time_limit = "10m"
    ranks = parameter([1, 2])
    threads = variable(int, value=1)

    @run_before("run")
    def set_ranks(self):
        self.num_tasks = self.ranks
        self.num_cpus_per_task = self.threads
        self.executable_opts += ["--set", f"device.threads={self.threads}", "--set", "log.progress=lines"]


@rfm.simple_test
class ConvoyLearns(ConvoyTest):
    """A small network on handwritten digits, with its data file, learns on one rank and on two."""
    executable_opts = ["train", "mlp_digits", "--set", "device.kind=cpu"]

    @sanity_function
    def learned(self):
        top1 = sn.extractsingle(r"^epoch 20: validation .* top-1 (\S+) %", self.stdout, 1, float)
        # 98.3 to 99.2 % with seeds 1 to 6; one image in 100 for other libraries and CPUs is 1 %.
        return sn.all([sn.assert_found(r"^finished after step \d+$", self.stdout),
                       sn.assert_found(rf"^ranks +{self.ranks} = ", self.stdout), sn.assert_ge(top1, 96.0)])


@rfm.simple_test
class ConvoySpeed(ConvoyTest):
    """Training speed of ResNet-9 on small images, the batch growing with the ranks. No reference: ReFrame records it, and
    a site sets its own with `reference`."""
    executable_opts = ["bench", "quickstart", "--steps", "10", "--warmup", "3", "--json", "bench.json"]

    @run_before("run")
    def grow_batch(self):
        self.executable_opts += ["--set", f"train.global_batch_size={64 * self.ranks}"]

    @sanity_function
    def measured(self):
        return sn.assert_found(r'"images_per_second"', "bench.json")

    @performance_function("images/s")
    def speed(self):
        return sn.extractsingle(r'"images_per_second": *([0-9.]+)', "bench.json", 1, float)
