# SPDX-License-Identifier: Apache-2.0
"""Opens a checkpoint with h5py: names, shapes, types, values, checksums and attributes are as docs/interface.md says.

Skipped when h5py is missing.
"""
import os
import shutil
import subprocess

import pytest

from programs import helper_program

h5py = pytest.importorskip("h5py")
numpy = pytest.importorskip("numpy")

IO_FILES = helper_program("io", "io_files")
SHAPES = {
    "/model/conv1/weight": (64, 3, 7, 7),
    "/model/bn1/running_mean": (64,),
    "/model/bn1/num_batches_tracked": (),
    "/model/layer1/0/conv1/weight": (64, 64, 3, 3),
    "/model/fc/weight": (1000, 2048),
    "/optimizer/momentum/fc/weight": (1000, 2048),
}
SCALARS = [name for name, shape in SHAPES.items() if shape == ()]
ARRAYS = [name for name, shape in SHAPES.items() if shape != ()]
ATTRIBUTES = {
    "format": "convoy-checkpoint",
    "format_version": 1,
    "step": 120,
    "epoch": 2,
    "samples_seen": 640,
    "seed": 42,
    "lr_step": 121,
    "loss_scale": 1024.0,
    "config": '[run]\nname = "über"\n',
    "program_version": "0.1.0",
    "mode": "data",
    "ranks": 2,
    "complete": 1,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("checkpoint") / "sample.h5")
    subprocess.run([IO_FILES, "checkpoint", path], check=True)
    return path


@pytest.fixture
def file(written):
    with h5py.File(written, "r") as file:
        yield file


@pytest.fixture
def sample(written):
    """A copy that a test may change, in its folder."""
    return shutil.copy(written, os.path.abspath("sample.h5"))


def problem(path):
    return subprocess.run([IO_FILES, "check", path], check=True, capture_output=True, text=True).stdout.strip()


def test_names(file):
    found = set()
    file.visititems(lambda name, item: found.add("/" + name) if isinstance(item, h5py.Dataset) else None)
    assert found == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_shape(file, name):
    assert file[name].shape == SHAPES[name]


@pytest.mark.parametrize("name", SCALARS)
def test_scalar(file, name):
    assert file[name].dtype == numpy.int64 and file[name][()] == 1000


@pytest.mark.parametrize("name", ARRAYS)
def test_layout(file, name):
    """Contiguous, without a filter: the checksum trailer covers the whole file."""
    assert file[name].chunks is None and not file[name].fletcher32


@pytest.mark.parametrize("name", ARRAYS)
def test_elements(file, name):
    assert file[name].dtype == numpy.float32
    count = int(numpy.prod(SHAPES[name]))
    expected = (numpy.arange(count, dtype=numpy.float32) / 4).reshape(SHAPES[name])
    assert numpy.array_equal(file[name][...], expected)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attribute(file, name):
    assert file.attrs[name] == ATTRIBUTES[name]


def test_time_is_utc(file):
    assert file.attrs["created"].endswith("Z")


def test_written_file_is_good(sample):
    assert problem(sample) == ""


def test_changed_with_h5py_is_good(sample):
    """Changed with h5py and closed: without the checksum trailer, but a checkpoint as long as it is complete."""
    with h5py.File(sample, "r+") as file:
        file.attrs["step"] = 121
        file["/model/bn1/running_mean"][...] = 0
    assert problem(sample) == ""


def test_without_its_last_attribute_is_incomplete(sample):
    with h5py.File(sample, "r+") as file:
        del file.attrs["complete"]
    assert "incomplete" in problem(sample)


def test_changed_byte_is_damage(sample):
    with h5py.File(sample, "r") as file:
        offset = file["/model/conv1/weight"].id.get_offset()
    with open(sample, "r+b") as raw:
        raw.seek(offset + 1000)
        byte = raw.read(1)[0]
        raw.seek(offset + 1000)
        raw.write(bytes([byte ^ 1]))
    assert "damaged: the checksum" in problem(sample)
