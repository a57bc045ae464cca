#!/usr/bin/env bash
# The steps inside an image of Debian 12, as root: builds headspan from the source that this script belongs to, installs it
# in /opt/headspan, and removes what only the build needs, the source too.
#
#   install.sh [cuda]    cuda: for GPUs, with PyTorch's wheel in /opt/pytorch instead of Debian's LibTorch
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prefix=/opt/headspan
options=(-DHEADSPAN_BUILD_TESTING=OFF "-DCMAKE_INSTALL_PREFIX=$prefix")
cd "$source"

bash jobs/packages.sh report
stays=$(apt-mark showmanual)
bash jobs/packages.sh build
apt-get install -y --no-install-recommends git  # headspan --version names the commit

case ${1:-cpu} in
  cpu) options+=(-DHEADSPAN_CUDA=off) ;;
  cuda)
    torch=$(bash jobs/pytorch.sh)
    mv "$(dirname "$torch")" /opt/pytorch
    options+=(-DHEADSPAN_CUDA=on -DHEADSPAN_TORCH_DIR=/opt/pytorch/torch) ;;
  *) echo "install: takes [cuda], not $*" >&2; exit 2 ;;
esac

# As in jobs/build.sh: a file with LibTorch's headers takes 1.5 GiB to compile.
jobs=$(awk -v most="$(nproc)" '/^MemAvailable/ { n = int($2 / 1572864); print n < 1 ? 1 : n < most ? n : most }' /proc/meminfo)
cmake --preset release "${options[@]}"
cmake --build build/release --parallel "$jobs"
cmake --install build/release --strip

# Packages that were installed for the build go, except mpirun and those of the libraries that the program loads.
mapfile -t built < <(comm -13 <(sort <<< "$stays") <(apt-mark showmanual | sort))
# (dpkg knows some files of /usr/lib as files of /lib.)
mapfile -t loaded < <(ldd $prefix/bin/headspan | sed -nE 's/.* => (\/[^ ]+) .*/\1/p' | xargs realpath |
  sed 'p; s/^\/usr//' | xargs dpkg -S 2> /dev/null | sed 's/: .*//' | sort -u)
apt-mark auto "${built[@]}" > /dev/null
apt-mark manual openmpi-bin "${loaded[@]}" > /dev/null
apt-get autoremove -y --purge
apt-get clean
cd /
rm -rf "$source" /var/lib/apt/lists/*
