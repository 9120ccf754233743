# SPDX-License-Identifier: Apache-2.0
"""Spack package of convoy. The folder packaging/spack is a package repository:

    spack repo add packaging/spack
    spack develop --path "$PWD" convoy@=0.1.0     (in an environment; or spack dev-build convoy@=0.1.0 here)
"""
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Convoy(CMakePackage):
    """Trains neural networks from one TOML file, on one rank or on many under MPI."""

    license("Apache-2.0")

    # There is no archive to download: the source is the checkout that `spack develop` names.
    version("0.1.0")
    manual_download = True

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.21:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:")
    depends_on("zlib-api")
    depends_on("libjpeg-turbo")
    depends_on("libpng@1.6.22:")
    depends_on("onednn@2.6: cpu_runtime=omp gpu_runtime=none")
    depends_on("fmt@8:")
    depends_on("nlohmann-json")
    depends_on("tomlplusplus")
    depends_on("cli11@2.1:", type="build")

    conflicts("%gcc@:10", msg="convoy is C++20: GCC 11 or later")

    generator("ninja")

    def cmake_args(self):
        return [self.define("CONVOY_TESTS", False)]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        convoy = Executable(join_path(self.prefix.bin, "convoy"))
        convoy("--version")
        convoy("check", "quickstart")
