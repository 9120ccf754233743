#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the .deb works on a bare machine: makes it (or takes FILE), installs it with apt on a minimal Debian 12 in a
# folder, and there, as a user without rights and in an empty folder, trains the quickstart by name, on one rank and on two,
# reads the man pages, completes a command line, and removes it again. Needs root, debootstrap and about 1 GB; without those
# it says so and ends with exit code 77. Usage: check_package.sh [--root FOLDER] [FILE.deb]   (default: a new folder, removed at the end)
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
source scripts/bare_debian.sh

keep=0 root="" package=""
while (($#)); do
  case "$1" in
    --root) keep=1 root=${2:?check_package: --root needs a folder}; shift 2 ;;
    *.deb) package=$1; shift ;;
    *) echo "check_package: unknown argument '$1' (usage: check_package.sh [--root FOLDER] [FILE.deb])" >&2; exit 2 ;;
  esac
done
need_debootstrap

if [[ -z "$package" ]]; then
  build package
  package=$(ls -t build-package/convoy_*.deb | head -n 1)
fi
if ((keep)); then mkdir -p "$root"; else root=$(mktemp -d "${TMPDIR:-/tmp}/convoy-package.XXXXXX"); fi
clean_up() { if ((!keep)); then rm -rf --one-file-system "$root"; fi; }
trap clean_up EXIT

make_bare_debian "$root"
cp "$package" "$root/root/convoy.deb"
bare() { echo "== $*"; in_bare_debian "$root" "$@"; }
# as_user COMMAND: in a folder of that user, with the environment of a login.
as_user() { bare su --login tester -c "cd ~/empty && $1"; }

# A minimal system keeps man pages out of packages (containers do): here they are wanted.
rm -f "$root"/etc/dpkg/dpkg.cfg.d/*docker* "$root"/etc/dpkg/dpkg.cfg.d/excludes
bare apt-get update -q
bare env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends /root/convoy.deb man-db bash-completion
bare bash -c 'id tester >/dev/null 2>&1 || useradd --create-home --shell /bin/bash tester'
bare bash -c 'rm -rf /home/tester/empty && install -d -o tester /home/tester/empty'

as_user 'convoy --version'
as_user 'convoy train quickstart'
as_user 'grep -q "\"event\":\"end\",\"reason\":\"finished\"" runs/quickstart/metrics.jsonl && ls runs/quickstart/checkpoints'
as_user 'mpirun -n 2 --oversubscribe convoy train mlp_digits --set train.epochs=3'
as_user 'convoy eval quickstart --checkpoint newest'
as_user 'convoy doctor'
as_user 'MANWIDTH=80 man convoy | head -n 12 && man --warnings convoy-train >/dev/null && man 5 convoy-config >/dev/null && man -f convoy-plan'
as_user 'test -z "$(man --warnings convoy 2>&1 >/dev/null)"'
# As an interactive shell does on the first Tab: bash-completion loads the file of the command by its name.
as_user 'source /usr/share/bash-completion/bash_completion; _completion_loader convoy; COMP_LINE="convoy train quickst"; COMP_POINT=${#COMP_LINE}; _convoy 2>/dev/null; test "${COMPREPLY[*]}" = quickstart && echo "completion: ${COMPREPLY[*]}"'
bare bash -c 'cd /usr/share/doc/convoy && ls && test -e copyright'
bare apt-get remove -y -q convoy
bare bash -c '! test -e /usr/bin/convoy && ! test -e /usr/share/convoy'
echo "check_package: $(basename "$package") installs, trains and is removed on a bare Debian 12"
