# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` into a prefix that is then moved: the program finds its examples there, and they run from any folder."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from programs import BUILD, MPI_ENVIRONMENT, ROOT

CONFIGS = os.path.join(ROOT, "app", "configs")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installation that was moved after it was made."""
    folder = tmp_path_factory.mktemp("prefix")
    made, moved = folder / "made", folder / "elsewhere" / "moved"
    result = subprocess.run(["cmake", "--install", BUILD, "--prefix", made], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    moved.parent.mkdir()
    made.rename(moved)
    return moved


@pytest.fixture
def convoy(prefix):
    """Runs the installed program, found on PATH, in the current folder."""
    path = f"{prefix / 'bin'}:{os.environ['PATH']}"

    def run(*words, status=0):
        result = subprocess.run(["convoy", *map(str, words)], capture_output=True, text=True, timeout=120,
                                env={**os.environ, **MPI_ENVIRONMENT, "PATH": path})
        assert result.returncode == status, result.stdout + result.stderr
        return result

    return run


def files_below(folder):
    return {os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder) for name in names}


def test_data_files(prefix):
    assert files_below(prefix / "share/convoy/configs") == files_below(CONFIGS)
    with open(os.path.join(CONFIGS, "digits.h5"), "rb") as there, open(prefix / "share/convoy/configs/digits.h5", "rb") as here:
        assert there.read() == here.read()
    assert {"export_onnx.py", "log_to.py", "plot.py", "plot_trace.py", "torch_interop.py", "torch_models.py", "train_torch.py"} == \
        files_below(prefix / "share/convoy/scripts")
    documents = files_below(prefix / "share/doc/convoy")
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "docs/interface.md",
            "docs/install.md"} <= documents
    assert not {name for name in documents if not name.endswith((".md", ".cff", "LICENSE"))}


def test_nothing_names_the_prefix_or_the_source(prefix):
    texts = [os.path.join(prefix, name) for name in files_below(prefix)]
    places = [os.fsencode(ROOT) + b"/", os.fsencode(BUILD) + b"/", b"/made/"]
    for path in texts:
        with open(path, "rb") as file:
            content = file.read()
        # A build that is not stripped names its sources in debug information.
        if not path.endswith("bin/convoy") or b".debug_info" not in content:
            assert not [place for place in places if place in content], path


def test_files_name_the_same_version(prefix):
    with open(os.path.join(ROOT, "CMakeLists.txt")) as file:
        version = re.search(r"project\(convoy VERSION (\S+) ", file.read())[1]
    packaging = pathlib.Path(ROOT, "packaging")
    assert f"\nversion: {version}\n" in pathlib.Path(ROOT, "CITATION.cff").read_text()
    (easyconfig,) = (packaging / "easybuild").glob("convoy-*.eb")
    assert easyconfig.name.startswith(f"convoy-{version}-") and f"\nversion = '{version}'\n" in easyconfig.read_text()
    assert f'version("{version}")' in (packaging / "spack/packages/convoy/package.py").read_text()
    assert files_below(prefix / "share/convoy/modulefiles") == {f"convoy/{version}.lua"}


def test_train_by_name_from_an_empty_folder(convoy):
    out = convoy("train", "toy").stdout
    assert "finished after step 100" in out
    assert os.listdir(".") == ["runs"] and os.listdir("runs") == ["toy"]
    again = convoy("train", "toy").stdout
    assert "already finished" in again


def test_example_with_data_beside_it(convoy, prefix):
    """Two steps of mlp_digits: digits.h5 is found in the installation, the run is in the current folder."""
    convoy("train", "mlp_digits", "--set", "train.steps=2")
    assert os.path.isfile("runs/mlp_digits/checkpoints/step-00000002.h5")
    with open("runs/mlp_digits/config.toml") as file:
        assert f'train = "{prefix}/share/convoy/configs/digits.h5:/train"' in file.read()
    assert "top-1" in convoy("eval", "mlp_digits", "--checkpoint", "newest").stdout


@pytest.mark.parametrize("words", (
    ["check", "quickstart"], ["inspect", "quickstart"], ["check", "tutorials/toy_ddp"],
    ["bench", "toy", "--steps", "1", "--warmup", "0"],
    ["plan", "toy", "--ranks", "2", "--machine", "h200_dgx"], ["train", "toy", "--dry-run"],
), ids=" ".join)
def test_every_command_takes_names(convoy, words):
    convoy(*words)


def test_launch_takes_names(convoy):
    assert "finished after step 100" in convoy("launch", "--nproc-per-node", "1", "--", "train", "toy").stdout


def test_own_file_wins(convoy):
    with open(os.path.join(CONFIGS, "toy.toml")) as source, open("quickstart", "w") as own:
        own.write(source.read().replace('name = "toy"', 'name = "mine"', 1))  # of [run]
    assert 'name = "mine"' in convoy("check", "quickstart").stdout
    os.remove("quickstart")
    os.mkdir("quickstart")
    assert "is a folder" in convoy("check", "quickstart", status=2).stderr


@pytest.mark.parametrize("command", ("train", "check", "bench", "inspect"))
def test_neither_file_nor_example(convoy, command):
    error = convoy(command, "quikstart", status=2).stderr
    assert error == ('convoy: error: quikstart: there is no such file, and no example config of that name '
                     '(did you mean "quickstart"?)\n')
    error = convoy(command, "zzz", status=2).stderr
    assert error.count("\n") == 1 and ", quickstart, " in error


def test_program_without_its_data(prefix):
    """The binary alone, copied away: a name is an error with a remedy, a file works."""
    shutil.copy(prefix / "bin/convoy", "alone")
    result = subprocess.run(["./alone", "check", "toy"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and result.stderr.endswith("of that name (name a TOML file)\n")
    result = subprocess.run(["./alone", "check", os.path.join(CONFIGS, "toy.toml")], capture_output=True, timeout=60)
    assert result.returncode == 0


@pytest.mark.parametrize("name", ("train", "train_mpirun", "elastic", "array_sweep"))
def test_batch_scripts_start_the_program_on_path(prefix, name):
    """With stand-ins for Slurm: the script starts the installed program with the example's name, and passes its exit code on."""
    os.mkdir("tools")
    starter = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" = --bind-to ] && shift; shift; done\nexec "$@"\n'
    for tool in ("srun", "mpirun"):
        with open(os.path.join("tools", tool), "w") as file:
            file.write(starter)
        os.chmod(os.path.join("tools", tool), 0o755)
    path = f"{os.path.abspath('tools')}:{prefix / 'bin'}:{os.environ['PATH']}"
    slurm = {"SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1",
             "VALUES": "0.05", "SLURM_JOB_NUM_NODES": "1", "LAUNCHER": "mpirun"}
    script = prefix / "share/convoy/slurm" / f"{name}.sbatch"
    if name != "elastic":  # convoy launch needs more of Slurm: that its script asks for the program is seen below
        result = subprocess.run(["bash", script, "toy"], capture_output=True, text=True, timeout=120,
                                env={**os.environ, **MPI_ENVIRONMENT, **slurm, "PATH": path})
        assert result.returncode == 0, result.stdout + result.stderr
        assert "finished after step 100" in result.stdout
    result = subprocess.run(["bash", script, "toy"], capture_output=True, text=True, timeout=60,
                            env={**slurm, "PATH": "/usr/bin:/bin"})
    assert result.returncode == 2 and "there is no program convoy on" in result.stderr


def test_container_script_starts_the_program_of_the_image(prefix):
    text = (prefix / "share/convoy/slurm/container.sbatch").read_text()
    assert re.search(r'"\$image" "\$\{CONVOY:-convoy\}"', text)
