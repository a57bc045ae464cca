#!/usr/bin/env bash
# Installs the distribution's packages that headspan needs and that are missing, on Debian 12 and derivatives.
#
#   bash jobs/packages.sh GROUP...      build: compiler and libraries
#                                       report: what headspan-report needs
#                                       test: what the tests need
#                                       fetch: what checkpoints/environment.sh needs
#                                       check: what jobs/check.sh needs
#                                       clang: Clang and clang-tidy
#                                       toolchains: the other libraries of tests/toolchains.sh
#                                       soak: what tests/soak.sh needs beside group test
#
# As root, or if sudo works without a password, it installs them. Otherwise it prints the command that does, and stops with
# exit code 1. On another system it prints what is needed and exits with 0; CMake then says what it does not find. It never
# asks.
set -euo pipefail

# The second column says what is needed on other systems.
build_packages=(
  "g++                            a C++17 compiler"
  "cmake                          CMake 3.22 or later"
  "ninja-build                    ninja"
  "ccache                         ccache (optional)"
  "pkg-config                     pkg-config"
  "python3                        Python 3"
  "openmpi-bin                    mpirun"
  "libopenmpi-dev                 an MPI library"
  "libscalapack-openmpi-dev       ScaLAPACK"
  "libopenblas-dev                BLAS and LAPACK"
  "libhdf5-openmpi-dev            HDF5 built with MPI"
  "libtorch-dev                   LibTorch 1.13 or later"
  "libdnnl-dev                    oneDNN 2 or later"
  "libboost-program-options-dev   Boost.Program_options"
  "nlohmann-json3-dev             nlohmann-json 3"
  "libssl-dev                     OpenSSL"
  "zlib1g-dev                     zlib"
  "libgtest-dev                   GoogleTest"
)
report_packages=(
  "python3-numpy                  numpy"
  "python3-h5py                   h5py"
  "python3-xarray                 xarray"
  "python3-h5netcdf               h5netcdf"
  "python3-matplotlib             matplotlib"
  "python3-jinja2                 jinja2"
  "python3-scipy                  scipy"
)
test_packages=(
  "${report_packages[@]}"
  "python3-sklearn                scikit-learn"
  "python3-pip                    pip, setuptools and wheel"
  "chromium                       Chromium, which opens the pages of headspan-report"
  "netcdf-bin                     ncdump of netCDF-4"
  "hdf5-tools                     h5dump of HDF5"
  "munge                          MUNGE, Slurm's authentication"
  "slurmctld                      slurmctld of Slurm"
  "slurmd                         slurmd of Slurm"
  "slurm-client                   sbatch and srun of Slurm"
  "libpmix-dev                    libpmix.so, which Slurm's srun opens"
  "iproute2                       ip"
  "groff-base                     groff, which checks the manual page"
  "zsh                            zsh, whose completion is tested"
  "busybox-static                 a shell that needs no library"
)
fetch_packages=(
  "python3-venv                   Python's venv and pip"
  "ca-certificates                the certificates of public servers"
)
check_packages=(
  "${fetch_packages[@]}"
  "doxygen                        Doxygen 1.9"
  "shellcheck                     ShellCheck"
)
clang_packages=(
  "clang                          Clang 14 or later"
  "libomp-dev                     its OpenMP"
  "clang-tidy                     clang-tidy"
  "libclang-rt-dev                its sanitizers and libFuzzer"
  "llvm                           llvm-cov and llvm-profdata"
)
toolchain_packages=(
  "libmpich-dev                   MPICH"
  "libscalapack-mpich-dev         ScaLAPACK for it"
  "libhdf5-mpich-dev              HDF5 for it"
  "mpich                          its mpiexec"
  "libblas-dev                    the reference BLAS"
  "liblapack-dev                  the reference LAPACK"
  "libblis-openmp-dev             BLIS"
)
soak_packages=(
  "valgrind                       valgrind"
  "qemu-user                      QEMU, which emulates processors"
)

say() { printf 'packages: %s\n' "$*" >&2; }

wanted=()
for group in "$@"; do
  case $group in
    build) wanted+=("${build_packages[@]}") ;;
    report) wanted+=("${report_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    fetch) wanted+=("${fetch_packages[@]}") ;;
    check) wanted+=("${check_packages[@]}") ;;
    clang) wanted+=("${clang_packages[@]}") ;;
    toolchains) wanted+=("${toolchain_packages[@]}") ;;
    soak) wanted+=("${soak_packages[@]}") ;;
    *) say "unknown group '$group'; known: build report test fetch check clang toolchains soak"; exit 2 ;;
  esac
done

is_debian() {
  command -v apt-get > /dev/null && command -v dpkg-query > /dev/null && [[ -r /etc/os-release ]] || return 1
  # shellcheck source=/dev/null
  (. /etc/os-release && [[ " ${ID:-} ${ID_LIKE:-} " == *" debian "* ]])
}

if ! is_debian; then
  say "this is not a Debian system; headspan needs the following, and CMake will say what it does not find:"
  for line in "${wanted[@]}"; do
    read -r _ what <<< "$line"
    say "  $what"
  done
  exit 0
fi

missing=()
for line in "${wanted[@]}"; do
  package=${line%% *}
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) || status=absent
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  say "all needed packages are there"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  as_root=(sudo -n)
  if ! { command -v sudo > /dev/null && sudo -n true 2> /dev/null; }; then
    say "missing: ${missing[*]}"
    say "no right to install them here; ask for, or run as root, then start again:"
    say "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    exit 1
  fi
fi

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" < /dev/null
}
say "installing: ${missing[*]}"
apt_get update || say "apt-get update failed; going on with the package lists that are there"
if ! apt_get install -y --no-install-recommends "${missing[@]}"; then
  say "apt-get could not install: ${missing[*]}; see its message above"
  exit 1
fi
