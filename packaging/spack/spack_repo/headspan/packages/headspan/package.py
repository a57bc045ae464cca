# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Headspan(CMakePackage, CudaPackage):
    """Measures how well each attention head of a language model can be predicted linearly from
    others, and makes compressed KV caches from the same sums."""

    # The clone that this recipe belongs to, at its last commit; a public address takes its place.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("python", default=True, description="With what headspan-report needs")
    variant("tests", default=False, description="Build the tests, for `spack install --test=root`")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")

    depends_on("mpi")
    depends_on("blas")
    depends_on("lapack")
    depends_on("scalapack")
    depends_on("hdf5@1.10: +mpi +hl")
    depends_on("boost +program_options")
    depends_on("nlohmann-json@3:")
    depends_on("openssl")
    depends_on("zlib-api")
    depends_on("py-torch@1.13:2.15")
    depends_on("googletest", type="build", when="+tests")

    with when("+cuda"):
        depends_on("py-torch +cuda +nccl")
        depends_on("nccl")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"py-torch cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(f"nccl cuda_arch={arch}", when=f"cuda_arch={arch}")
    conflicts("cuda_arch=none", when="+cuda", msg="py-torch needs to know the GPUs: cuda_arch=90")

    with when("+python"):
        extends("python@3.9:")
        with default_args(type="run"):
            depends_on("py-numpy@1.24:")
            depends_on("py-xarray@2023.1:")
            depends_on("py-h5py@3.7:")
            depends_on("py-h5netcdf@1.1:")
            depends_on("py-matplotlib@3.6:")
            depends_on("py-jinja2@3.1:")
            depends_on("py-scipy@1.9:")

    sanity_check_is_file = ["bin/headspan"]

    def flag_handler(self, name, flags):
        # headspan compiles its kernels for several processors and chooses one when it runs; for
        # that, everything else has to be compiled for the oldest.
        if name == "cxxflags" and self.spec.satisfies("target=x86_64:"):
            flags.append("-march=x86-64")
        return (None, None, flags)

    def cmake_args(self):
        args = [
            self.define("HEADSPAN_CUDA", "on" if self.spec.satisfies("+cuda") else "off"),
            self.define_from_variant("HEADSPAN_BUILD_TESTING", "tests"),
            self.define("BLAS_LIBRARIES", self.spec["blas"].libs.joined(";")),
            self.define("LAPACK_LIBRARIES", self.spec["lapack"].libs.joined(";")),
        ]
        # CMake finds netlib's, which Debian names otherwise.
        scalapack = self.spec["scalapack"]
        if scalapack.name != "netlib-scalapack":
            args.append(self.define("ScaLAPACK_LIBRARY", scalapack.libs.joined(";")))
        # A distribution's LibTorch is not in the folder of its Python package; CMake finds it.
        torch = Path(self["py-torch"].cmake_prefix_paths[0]).parents[1]
        if (torch / "include" / "ATen").is_dir():
            args.append(self.define("HEADSPAN_TORCH_DIR", torch))
        if self.spec.satisfies("+python"):
            args.append(self.define("HEADSPAN_PYTHON_DIR", self["python"].purelib))
        return args

    def check(self):
        with working_dir(self.builder.build_directory):
            ctest("--output-on-failure", "--tests-regex", "[.][1-6]$")  # of C++, on as many ranks

    def test_theory(self):
        """headspan starts, and draws random heads"""
        headspan = which(self.prefix.bin.headspan)
        headspan(
            "theory", "--theory.hidden_size=256", "--theory.head_size=32", "--theory.trials=2"
        )
