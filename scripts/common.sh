# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the scripts that build and run convoy, from the repository's root.

# Compilers at once: CONVOY_BUILD_JOBS, or one a core as far as memory allows (about 1.5 GiB each).
build_jobs() {
  if [[ -n "${CONVOY_BUILD_JOBS:-}" ]]; then
    echo "$CONVOY_BUILD_JOBS"
    return
  fi
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ {print int($2 / 1572864)}' /proc/meminfo)
  ((memory >= 1)) || memory=1
  echo $((cores < memory ? cores : memory))
}

# build PRESET [OPTION...]: configures (again each time, in seconds: what is installed may have changed), then builds.
build() {
  cmake --preset "$1"
  cmake --build --preset "$1" --parallel "$(build_jobs)" "${@:2}"
}

# Open MPI refuses to run as root unless told twice; containers usually are root.
allow_mpi_as_root() {
  if [[ $(id -u) -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
}

# Cores that Open MPI may count as slots: it takes physical cores, not hardware threads.
physical_cores() {
  local cores
  cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l)
  ((cores >= 1)) || cores=1
  local allowed
  allowed=$(nproc)
  echo $((cores < allowed ? cores : allowed))
}
