# SPDX-License-Identifier: Apache-2.0
"""The .deb that cpack makes of this build: its fields, its files, and what Debian wants of them. scripts/check_package.sh
installs it on a bare Debian.
"""
import gzip
import os
import platform
import re
import shutil
import subprocess

import pytest

from programs import BUILD

pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("cpack", "dpkg-deb", "dpkg-shlibdeps"))),
                                reason="no cpack, dpkg-deb or dpkg-shlibdeps (Debian: dpkg-dev)")


def output(*words):
    result = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Path of the .deb, and the folder with its files."""
    folder = tmp_path_factory.mktemp("deb")
    output("cpack", "-G", "DEB", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", str(folder))
    (path,) = folder.glob("*.deb")
    output("dpkg-deb", "-x", str(path), str(folder / "files"))
    return path, folder / "files"


def field(path, name):
    return output("dpkg-deb", "-f", str(path), name).strip()


def test_fields(package):
    path, _ = package
    architecture = output("dpkg", "--print-architecture").strip()
    assert field(path, "Package") == "convoy" and field(path, "Architecture") == architecture
    version = field(path, "Version")
    assert re.fullmatch(r"\d+\.\d+\.\d+-1~[a-z]+[\d.]*", version)
    assert path.name == f"convoy_{version}_{architecture}.deb"
    release = platform.freedesktop_os_release()
    assert version.endswith(f"-1~{release['ID']}{release.get('VERSION_ID', '')}")
    depends = field(path, "Depends")
    assert re.match(r"(openmpi-bin|mpich), ", depends)
    for library in ("libc6", "libdnnl", "libhdf5", "libgomp1", "libstdc\\+\\+6", "lib(open)?mpi"):
        assert re.search(rf"(^|, ){library}", depends), library


def test_files(package):
    _, files = package
    usr, doc = files / "usr", files / "usr/share/doc/convoy"
    assert os.access(usr / "bin/convoy", os.X_OK)
    for name in ("share/convoy/configs/digits.h5", "share/convoy/configs/DIGITS_LICENSE.md", "share/convoy/slurm/train.sbatch",
                 "share/bash-completion/completions/convoy", "share/zsh/vendor-completions/_convoy",
                 "share/fish/vendor_completions.d/convoy.fish", "share/doc/convoy/copyright"):
        assert (usr / name).is_file(), name
    pages = sorted((usr / "share/man").rglob("*.*"))
    assert len(pages) >= 13 and {page.suffix for page in pages} == {".gz"}
    assert b".TH CONVOY 1 " in gzip.decompress((usr / "share/man/man1/convoy.1.gz").read_bytes())
    assert gzip.decompress((doc / "changelog.Debian.gz").read_bytes()).startswith(b"convoy (")
    assert b"# Changelog" in gzip.decompress((doc / "changelog.gz").read_bytes())
    assert not (doc / "LICENSE").exists()  # copyright names the system's copy
    assert "common-licenses/Apache-2.0" in (doc / "copyright").read_text()


def test_program_has_no_path_of_the_build(package):
    _, files = package
    dynamic = output("readelf", "-d", str(files / "usr/bin/convoy"))
    assert "(NEEDED)" in dynamic and "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert os.fsencode(BUILD) not in (files / "usr/bin/convoy").read_bytes()


def test_lintian_finds_no_error(package):
    path, _ = package
    if not shutil.which("lintian"):
        pytest.skip("no lintian")
    result = subprocess.run(["lintian", "--fail-on", "error", str(path)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout
