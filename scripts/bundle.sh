#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs a build into one file for machines where nothing can be installed or built: a folder convoy-bundle with the
# program, the tests that scripts/gpu_check.sh runs, Open MPI's launcher and every shared library that they need, except
# glibc's and CUDA's, which belong to the machine. docs/bundle.md says what is in it and how it is used. Libraries that
# mpirun needs are in lib, what only the programs need in lib/program, so that an ssh or srun that mpirun starts meets
# none of the latter; GCC's are in lib/gcc, since the machine's win where they are not older. LD_LIBRARY_PATH finds them
# all: RUNPATH yields to it.
# Usage: bundle.sh [--build DIR] [--out FILE]   (default: build-cuda if it is there, else build; convoy-bundle.tar.xz)
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
limit_mib=20

stop() {
  echo "bundle: $*" >&2
  exit 1
}

build="" out=convoy-bundle.tar.xz
usage="usage: scripts/bundle.sh [--build DIR] [--out FILE.tar.xz]"
while (($#)); do
  case "$1" in
    -h | --help) echo "$usage"; exit 0 ;;
    --build | --out)
      (($# >= 2)) || { echo "bundle: $1 needs a value ($usage)" >&2; exit 2; }
      if [[ "$1" == --build ]]; then build=$2; else out=$2; fi
      shift 2
      ;;
    *) echo "bundle: unknown argument '$1' ($usage)" >&2; exit 2 ;;
  esac
done
if [[ -z "$build" ]]; then build=$([[ -x build-cuda/app/convoy ]] && echo build-cuda || echo build); fi
[[ -x "$build/app/convoy" ]] || stop "there is no $build/app/convoy: build it (cmake --build --preset release), or name another build with --build DIR"
for tool in ldd readelf tar xz; do
  command -v "$tool" >/dev/null || stop "there is no $tool (apt-get install binutils tar xz-utils)"
done
[[ -w "$(dirname "$out")" ]] || stop "--out: the folder of $out is not there, or may not be written"

# Part of glibc, which comes with the kernel's loader; of CUDA and its driver.
glibc='^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nsl|nss_.*|thread_db|BrokenLocale))\.so'
cuda='^lib(cuda|cudart|cudnn|cublas|cufft|curand|cusolver|cusparse|cupti|nccl|nv[A-Za-z]).*\.so'
gcc='^lib(stdc\+\+|gcc_s)\.so'
# Open MPI's components that nothing here calls (OpenSHMEM, MPI-IO, monitoring) or that drag in a network's libraries.
unused='^mca_((atomic|memheap|scoll|spml|sshmem|io|fs|fbtl|fcoll|sharedfp|mtl)_.*|pml_cm|.*_(ucx|uct|ofi|openib|psm|psm2|monitoring))\.so$'

# needed FILE...: "NAME PATH" of each library that they load, and those load in turn; PATH is "not" where there is none.
needed() { ldd "$@" 2>/dev/null | awk '$2 == "=>" {print $1, $3}' | sort -u | grep -Ev "$glibc|$cuda" || true; }
elf() { [[ "$(head -c 4 "$1" | tr -d '\0')" == $'\x7fELF' ]]; }

# --- Open MPI, the one that the build uses
mpirun=$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt")
bindir=$(dirname "${mpirun:-/usr/bin/mpirun}")
[[ -x "$bindir/orterun" && -x "$bindir/orted" && -x "$bindir/ompi_info" ]] ||
  stop "$bindir has no orterun, orted and ompi_info: a bundle needs a build with Open MPI 4 (Debian: openmpi-bin)"
mpi_path() { "$bindir/ompi_info" --path "$1" --parsable | awk -F: -v name="$1" '$2 == name {path = $3} END {print path}'; }
component_folder=$(mpi_path pkglibdir)
components=() left_out=0
for file in "$component_folder"/mca_*.so; do
  if [[ "${file##*/}" =~ $unused ]] || [[ "$(needed "$file")" == *" not"* ]]; then
    left_out=$((left_out + 1))
  else
    components+=("$file")
  fi
done
((${#components[@]} >= 20)) || stop "$component_folder has only ${#components[@]} usable components: an Open MPI that was built without them cannot be moved"
pmix=$(needed "${components[@]}" | awk '$1 ~ /^libpmix\.so/ {path = $2} END {print path}')
pmix_components=()
if [[ -n "$pmix" ]]; then
  pmix_folder=$(dirname "$(readlink -f "$pmix")")
  pmix_components=("$pmix_folder"/pmix/*.so)
fi

# --- programs
programs=("$build/app/convoy")
if [[ -e "$build/gpu_tests.json" ]]; then
  while read -r file; do
    [[ -x "$build/$file" ]] || stop "there is no $build/$file: build it (cmake --build $build)"
    programs+=("$build/$file")
  done < <(sed -n 's/.*"program": "\([^"]*\)".*/\1/p' "$build/gpu_tests.json" | sort -u)
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/convoy-bundle
mkdir -p "$root"/{bin,etc,libexec/tests,lib/{openmpi,pmix,program,gcc},share/{pmix,licences},tests/run,app}

origins=$work/origins  # of what others wrote: FILE in the bundle, tab, the file on this machine
copy() {  # copy FILE... FOLDER or copy FILE NEW_FILE
  local file to=${*: -1} copied
  cp "$@"
  for file in "${@:1:$#-1}"; do
    copied=$to
    if [[ -d "$to" ]]; then copied=${to%/}/${file##*/}; fi
    printf '%s\t%s\n' "${copied#"$root"/}" "$(readlink -f "$file")" >>"$origins"
  done
}

copy "$bindir/orterun" "$bindir/orted" "$root/libexec/"
for file in "${programs[@]}"; do
  case "$file" in
    */app/convoy) cp "$file" "$root/libexec/convoy" ;;
    *) cp "$file" "$root/libexec/tests/" ;;
  esac
done
copy "${components[@]}" "$root/lib/openmpi/"
if ((${#pmix_components[@]})); then copy "${pmix_components[@]}" "$root/lib/pmix/"; fi
chmod u+w -R "$root"
if [[ -e "$build/gpu_tests.json" ]]; then
  sed 's|"program": "[^"]*/|"program": "tests/run/|' "$build/gpu_tests.json" >"$root/gpu_tests.json"
fi
if command -v strip >/dev/null; then strip --strip-unneeded "$root/libexec/convoy" "$root"/libexec/tests/*; fi

# --- libraries
copy_libraries() {  # copy_libraries FOLDER < "NAME PATH"...
  local name path real
  while read -r name path; do
    [[ "$path" == /* ]] || stop "$name, which the build needs, is not on this machine"
    [[ -e "$root/lib/$name" ]] && continue
    real=$(readlink -f "$path")
    if [[ "$name" =~ $gcc ]]; then
      copy "$real" "$root/lib/gcc/"  # its file name has its version
      if [[ "${real##*/}" != "$name" ]]; then ln -sf "${real##*/}" "$root/lib/gcc/$name"; fi
    else
      copy "$real" "$1/$name"
    fi
  done
}
copy_libraries "$root/lib" < <(needed "$bindir/orterun" "$bindir/orted" "${components[@]}" "${pmix_components[@]}")
copy_libraries "$root/lib/program" < <(needed "${programs[@]}")
readelf -d "${programs[@]}" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u | grep -E "$cuda" >"$root/etc/cuda_libraries" || true

# --- texts, settings, wrappers
cp -r "$(mpi_path pkgdatadir)" "$root/share/openmpi"
if [[ -n "$pmix" && -d "$pmix_folder/../share/pmix" ]]; then cp -r "$pmix_folder/../share/pmix" "$root/share/"; fi
rm -f "$root"/share/{openmpi,pmix}/{*-wrapper-data.txt,*.supp,*.ini}
cat >"$root/etc/openmpi-mca-params.conf" <<'END'
# Messages go through shared memory and TCP: components for other networks are not in this folder.
pml = ob1
btl = self,vader,tcp
# Containers often forbid one process to read another's memory, and for convoy's messages two copies are the faster way.
btl_vader_single_copy_mechanism = none
END
: >"$root/etc/openmpi-default-hostfile"

# wrapper FILE UP KIND PROGRAM [NAME]: starts PROGRAM of libexec with the libraries of the bundle, UP folders above FILE.
wrapper() {
  local as=""
  if [[ -n "${5:-}" ]]; then as="-a \"\$root/$5\" "; fi
  cat >"$root/$1" <<END
#!/usr/bin/env bash
root=\$(cd "\$(dirname "\$(readlink -f "\${BASH_SOURCE[0]}")")/$2" && pwd -P)
source "\$root/libexec/environment.sh" $3
exec $as"\$root/libexec/$4" "\$@"
END
  chmod 755 "$root/$1"
}
wrapper bin/convoy .. program convoy
# By its name in bin mpirun learns where to start orted on other nodes.
wrapper bin/mpirun .. launcher orterun bin/mpirun
wrapper bin/orted .. launcher orted bin/orted
for file in "$root"/libexec/tests/*; do wrapper "tests/run/${file##*/}" ../.. program "tests/${file##*/}"; done

cat >"$root/libexec/environment.sh" <<'END'
# Sourced by the programs in bin and tests/run with $root set and the word launcher or program: makes the libraries of
# this folder be found and, for programs, this machine's CUDA.

# Open MPI, PMIx and hwloc were built for other folders.
export OPAL_PREFIX="$root" OPAL_LIBDIR="$root/lib" OPAL_PKGLIBDIR="$root/lib/openmpi" OPAL_SYSCONFDIR="$root/etc"
export PMIX_PREFIX="$root" PMIX_LIBDIR="$root/lib" PMIX_PKGLIBDIR="$root/lib/pmix" PMIX_SYSCONFDIR="$root/etc"
export HWLOC_PLUGINS_PATH="$root/lib/hwloc"
if [[ ":$PATH:" != *":$root/bin:"* ]]; then export PATH="$root/bin:$PATH"; fi

# Only absolute folders: an empty or relative one means whatever folder the program is started in.
IFS=: read -ra library_path <<<"${LD_LIBRARY_PATH:-}"
for index in "${!library_path[@]}"; do
  if [[ "${library_path[index]}" != /* ]]; then unset "library_path[index]"; fi
done

# first_with NAME FOLDER...: sets `folder` to the first that has this file; fails if none has.
first_with() {
  local name=$1
  shift
  for folder in "$@"; do
    if [[ -e "$folder/$name" ]]; then return 0; fi
  done
  return 1
}

# Where this machine's loader has library $1; nothing if it has not.
system_library() {
  PATH="$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null |
    awk -v name="$1" '$1 == name && $2 ~ /64/ && !path {path = $NF} END {print path}'
}

# Prints ":" and the folder of this bundle's GCC libraries, where the machine has none or older ones.
gcc_folder() {
  local folder theirs="" ours
  if first_with libstdc++.so.6 "${library_path[@]}"; then
    theirs=$folder/libstdc++.so.6
  else
    theirs=$(system_library libstdc++.so.6)
  fi
  if [[ -n "$theirs" ]]; then theirs=$(basename "$(readlink -f "$theirs")"); fi
  ours=$(basename "$(readlink -f "$root/lib/gcc/libstdc++.so.6")")
  if [[ "$(printf '%s\n' "$theirs" "$ours" | sort -V | tail -n 1)" != "$theirs" ]]; then echo ":$root/lib/gcc"; fi
}

# The folders of NVIDIA's pip packages.
python_folders() {
  local python
  for python in "${PYTHON:-}" python3; do
    [[ -n "$python" ]] || continue
    "$python" -c 'import sys
sys.path = [path for path in sys.path if path.startswith("/")]  # not the folder that it is started in
import glob
for path in sys.path:
    for folder in sorted(glob.glob(path + "/nvidia/*/lib")): print(folder)' 2>/dev/null
  done
}

# Prints the folders, each with a ":" before it, that LD_LIBRARY_PATH lacks for CUDA's libraries. Of each the first place
# counts: LD_LIBRARY_PATH, CUDA_HOME, /usr/local/cuda, the loader's own folders, Python's. Names what is in none of them.
cuda_folders() {
  local name folder found="" missing="" asked_python=0 packages
  local -A used=()
  local places=("${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64)
  for name in $(cat "$root/etc/cuda_libraries"); do
    if first_with "$name" "${library_path[@]}"; then continue; fi
    if ! first_with "$name" "${places[@]}"; then
      if [[ -n "$(system_library "$name")" ]]; then continue; fi
      if ((!asked_python)); then
        mapfile -t packages < <(python_folders)
        places+=("${packages[@]}")
        asked_python=1
      fi
      if ! first_with "$name" "${places[@]}"; then
        missing+=" $name"
        continue
      fi
    fi
    used[$folder]=1
  done
  if [[ -n "$missing" ]]; then
    echo "convoy: error: this machine lacks$missing (looked in LD_LIBRARY_PATH, CUDA_HOME, /usr/local/cuda, the loader's" \
      "folders and python3's packages): install cuDNN, cuBLAS and NCCL for CUDA, or name their folder in LD_LIBRARY_PATH" >&2
    return 1
  fi
  for folder in "${places[@]}"; do
    if [[ -n "${used[$folder]:-}" ]]; then found+=":$folder"; fi
    unset "used[$folder]"
  done
  echo "$found"
}

# Without ssh this Open MPI ends with an error, even where one machine is enough.
if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then export OMPI_MCA_plm="${OMPI_MCA_plm:-^rsh}"; fi

before="" after=""
if [[ "$1" == program ]]; then
  before=:$root/lib/program$(gcc_folder)
  after=$(cuda_folders) || exit 1
fi
theirs=$(IFS=: && echo "${library_path[*]}")
export LD_LIBRARY_PATH="$root/lib$before${theirs:+:$theirs}$after"
END

cp -r app/configs "$root/app/"
mkdir -p "$root/scripts" "$root/docs"
cp scripts/{common.sh,gpu_check.sh,gpu_{check,session,speed,tests,training,bench_torch}.py,torch_{models,server}.py,run_logged.py,tutorials.py,tutorials_report.py,plot_tutorials.py,reproduce_tutorials.sh,plot_trace.py,check_plan.py} \
  "$root/scripts/"
cp docs/*.md "$root/docs/"
cp LICENSE "$root/"
find "$root" -name __pycache__ -prune -exec rm -rf {} +

# The licences of what others wrote, where the system keeps them.
if command -v dpkg-query >/dev/null; then
  while read -r package; do
    if [[ -e "/usr/share/doc/$package/copyright" ]]; then
      cp "/usr/share/doc/$package/copyright" "$root/share/licences/$package"
    fi
  done < <({ cut -f 2 "$origins" | sed 'p; s|^/usr||' | xargs dpkg-query -S 2>/dev/null || true; } | sed 's/[:,].*//' | sort -u)
fi

glibc_needed=$(find "$root" -type f \( -name '*.so*' -o -path '*/libexec/*' -not -name '*.sh' \) -exec readelf -V {} + 2>/dev/null |
               grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1 || true)
{
  "$build/app/convoy" --version
  echo "machine   $(uname -s) $(uname -m), glibc ${glibc_needed#GLIBC_} or newer"
  if [[ -s "$root/etc/cuda_libraries" ]]; then echo "of CUDA   $(paste -sd ' ' "$root/etc/cuda_libraries")"; fi
} >"$root/VERSION"
if command -v python3 >/dev/null; then
  python3 scripts/sbom.py "$root" "$("$build/app/convoy" --version | awk 'NR == 1 {print $2}')" <"$origins" >"$work/sbom.spdx.json"
  mv "$work/sbom.spdx.json" "$root/share/"
fi

tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -c convoy-bundle | xz -9 -T0 >"$out.part"
mv "$out.part" "$out"
(cd "$(dirname "$out")" && sha256sum "${out##*/}" >"${out##*/}.sha256")
bytes=$(stat -c %s "$out")
cat "$root/VERSION"
echo "bundle: $out, $((bytes / 1048576)).$((bytes % 1048576 * 10 / 1048576)) MiB, $(find "$root" -type f | wc -l) files," \
  "$(find "$root/lib" "$root/lib/program" "$root/lib/gcc" -maxdepth 1 -name '*.so*' -type f | wc -l) libraries," \
  "${#components[@]} components of Open MPI ($left_out left out), $((${#programs[@]} - 1)) test programs"
((bytes <= limit_mib * 1048576)) || stop "$out is larger than $limit_mib MiB (build for fewer GPU architectures: cmake -DCMAKE_CUDA_ARCHITECTURES=90-real)"
