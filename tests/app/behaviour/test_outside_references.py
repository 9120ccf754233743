# SPDX-License-Identifier: Apache-2.0
"""HDF5 files that refer to other files (external storage, virtual datasets, external links) are refused wherever convoy
reads HDF5: exit code 2, one line that names file and object, and the other file is never opened."""
import os
import shutil
import subprocess
import sys

import pytest

from behaviour import DIGITS, MLP, USAGE, Folder, config, error_lines, h5py
from checksums import with_trailer
from programs import CONVOY, ROOT

pytestmark = pytest.mark.skipif(h5py is None, reason="needs h5py")


def external_storage(file, name, other, shape, dtype):
    file.create_dataset(name, shape, dtype, external=[(other + ".raw", 0, h5py.h5f.UNLIMITED)])


def virtual_dataset(file, name, other, shape, dtype):
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(other, name, shape, dtype)
    file.create_virtual_dataset(name, layout)


def external_link(file, name, other, shape, dtype):
    file[name] = h5py.ExternalLink(other, name)


def external_group(file, name, other, shape, dtype):
    """The group is another file's, so the dataset has no link in this one."""
    group = name.rpartition("/")[0]
    file[group] = h5py.ExternalLink(other, group)


def soft_link(file, name, other, shape, dtype):
    file["elsewhere"] = h5py.ExternalLink(other, "/")
    file[name] = h5py.SoftLink("/elsewhere" + name)


REFERENCES = {"external_storage": external_storage, "virtual_dataset": virtual_dataset, "external_link": external_link,
              "external_group": external_group, "soft_link": soft_link}
every_kind = pytest.mark.parametrize("kind", REFERENCES)
OBJECTS = {"external_group": lambda name: name.rpartition("/")[0], "soft_link": lambda name: "/elsewhere"}


def named(kind, name):
    """The object that the message names."""
    return OBJECTS.get(kind, lambda same: same)(name)


def refer(path, source, name, kind, libver=None):
    """`path`: the file `source`, but `name` in it refers to other.h5 beside `path`: valid data that HDF5 finds. Then a
    pipe takes the place of that file, and whoever opens it hangs."""
    other = os.path.join(os.path.dirname(path), "other.h5")
    shutil.copy(source, other)
    with h5py.File(source, "r") as file:
        values = file[name][()]
    values.tofile(other + ".raw")
    with h5py.File(source, "r") as original, h5py.File(path, "w", libver=libver) as file:
        for key, value in original.attrs.items():
            file.attrs[key] = value
        group = name.rpartition("/")[0]
        skipped = [named(kind, name), name] + ([] if kind != "external_group" else [group])

        def copy(at, item):
            if isinstance(item, h5py.Dataset) and not any(f"/{at}/".startswith(s + "/") for s in skipped):
                file[at] = item[()]
        original.visititems(copy)
        REFERENCES[kind](file, name, other, values.shape, values.dtype)
    with h5py.File(path, "r") as file:
        assert (file[name][()] == values).all()  # HDF5 itself follows the reference
    for replaced in (other, other + ".raw"):
        os.remove(replaced)
        os.mkfifo(replaced)


def convoy(folder, *words):
    return subprocess.run([CONVOY, *words], cwd=folder.path, capture_output=True, text=True, timeout=60)


def is_refused(run, path, place):
    assert run.returncode == USAGE, run.stderr[-1500:]
    lines = error_lines(run.stderr)
    assert len(lines) == 1, run.stderr[-1500:]
    assert f"{path}:{place}: " in lines[0] and "files that refer to others are not read" in lines[0], lines[0]


def trains_not(folder, path, place):
    assert folder.run(1, timeout=60) == USAGE, folder.stderr[-1500:]
    lines = error_lines(folder.stderr)
    assert len(lines) == 1, folder.stderr[-1500:]
    assert f"{path}:{place}: " in lines[0] and "files that refer to others are not read" in lines[0], lines[0]


@every_kind
@pytest.mark.parametrize("part", ("train", "validation"))
def test_data(kind, part):
    folder = Folder("run", config(data={part: "data.h5:/" + part}))
    refer(folder.file("data.h5"), DIGITS, f"/{part}/images", kind)
    trains_not(folder, "data.h5", named(kind, f"/{part}/images"))


@every_kind
def test_labels_and_unused_objects(kind):
    """Of objects that the run does not use, too: every file is refused as a whole."""
    folder = Folder("run", config(data={"train": "data.h5:/train"}))
    refer(folder.file("data.h5"), DIGITS, "/validation/labels", kind)
    trains_not(folder, "data.h5", named(kind, "/validation/labels"))


@every_kind
def test_pack_and_inspect(kind):
    folder = Folder("run", config())
    refer(folder.file("data.h5"), DIGITS, "/train/images", kind)
    place = named(kind, "/train/images")
    is_refused(convoy(folder, "pack", "data.h5:/train", "out.h5"), "data.h5", place)
    assert not os.path.exists(folder.file("out.h5"))
    is_refused(convoy(folder, "inspect", "data.h5"), "data.h5", place)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("trained") / "run", config(MLP, train={"steps": 2}))
    folder.train()
    return folder.checkpoints()[-1]


@every_kind
@pytest.mark.parametrize("checksummed", (False, True))
def test_weights_and_checkpoints(trained, kind, checksummed):
    """A checksum trailer says that a file is whole, not that it may be trusted."""
    folder = Folder("run", config())
    path, name = folder.file("file.h5"), "/model/fc1/weight"
    refer(path, trained, name, kind, libver="v108")
    if checksummed:
        with_trailer(path)
    place = named(kind, name)
    for sections in (config({**MLP, "weights": "file.h5"}), config(checkpoint={"resume": "file.h5"})):
        run = Folder(f"run-{len(sections['model'])}", sections)
        shutil.copy(path, run.file("file.h5"))
        trains_not(run, "file.h5", place)
    is_refused(convoy(folder, "eval", "run.toml", "--checkpoint", "file.h5"), "file.h5", place)
    is_refused(convoy(folder, "inspect", "file.h5"), "file.h5", place)


@every_kind
def test_torch_interop(trained, kind):
    pytest.importorskip("numpy")
    folder = Folder("run", config())
    refer(folder.file("file.h5"), trained, "/model/fc1/weight", kind)
    script = os.path.join(ROOT, "scripts", "torch_interop.py")
    run = subprocess.run([sys.executable, script, "file.h5", "out.safetensors"], cwd=folder.path, capture_output=True,
                         text=True, timeout=60)
    assert run.returncode != 0 and "files that refer to others are not read" in run.stderr, run.stderr
    assert not os.path.exists(folder.file("out.safetensors"))
