# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the scripts that try something on a bare Debian in a folder. Needs root, debootstrap and unshare. Mirror,
# name service, certificates and proxy are those of this machine.

# Where systems are kept between runs.
platforms_folder() { echo "${CONVOY_PLATFORMS:-${XDG_CACHE_HOME:-$HOME/.cache}/convoy/platforms}"; }

skip() {
  echo "$(basename "$0" .sh): skipped: $1"
  exit 77
}

# need_debootstrap: skips where no system can be made.
need_debootstrap() {
  [[ $(id -u) -eq 0 ]] || skip "not root, which debootstrap and chroot need"
  command -v debootstrap >/dev/null || skip "there is no debootstrap (apt install debootstrap)"
}

# The first Debian mirror that this machine itself uses; empty if it uses none.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/\?$' || true
}

# make_bare_debian FOLDER [PACKAGE,... [RELEASE]]: a minimal Debian (RELEASE: bookworm) with these packages, unless it is
# there already.
make_bare_debian() {
  local root=$1 release=${3:-bookworm} mirror
  mirror=$(debian_mirror)
  if [[ ! -e "$root/bin/bash" ]]; then
    debootstrap --variant=minbase --include="ca-certificates${2:+,$2}" "$release" "$root" ${mirror:+"$mirror"}
  fi
  if [[ -n "$mirror" ]]; then echo "deb $mirror $release main" >"$root/etc/apt/sources.list"; fi
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  mkdir -p "$root/etc/ssl/certs"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"  # a proxy of the host may have its own
}

# in_bare_debian FOLDER COMMAND...: as root of that Debian, in its folder /root/convoy if there is one, with a clean
# environment. Mounts are in a namespace of their own and end with the command, whatever ends it.
in_bare_debian() {
  local root=$1
  shift
  unshare --mount bash -c '
    set -e
    root=$1
    shift
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount --rbind /sys "$root/sys"
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
      PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${http_proxy:+http_proxy="$http_proxy"} \
      ${https_proxy:+https_proxy="$https_proxy"} ${CONVOY_MPI:+CONVOY_MPI="$CONVOY_MPI"} ${CXX:+CXX="$CXX"} ${CONVOY_BUILD_JOBS:+CONVOY_BUILD_JOBS="$CONVOY_BUILD_JOBS"} \
      chroot "$root" bash -c "cd /root/convoy 2>/dev/null || cd /root; exec \"\$@\"" bash "$@"' bash "$root" "$@"
}
