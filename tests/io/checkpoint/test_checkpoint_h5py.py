# SPDX-License-Identifier: Apache-2.0
"""Opens a checkpoint with h5py: names, shapes, types, values, checksums and attributes are as docs/interface.md says.

Usage: test_checkpoint_h5py.py IO_FILES. Exit code 77 when h5py is missing."""
import subprocess
import sys

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SHAPES = {
    "/model/conv1/weight": (64, 3, 7, 7),
    "/model/bn1/running_mean": (64,),
    "/model/bn1/num_batches_tracked": (),
    "/model/layer1/0/conv1/weight": (64, 64, 3, 3),
    "/model/fc/weight": (1000, 2048),
    "/optimizer/momentum/fc/weight": (1000, 2048),
}
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


def datasets(file):
    found = {}
    file.visititems(lambda name, item: found.update({"/" + name: item}) if isinstance(item, h5py.Dataset) else None)
    return found


def problem(path):
    return subprocess.run([sys.argv[1], "check", path], check=True, capture_output=True, text=True).stdout.strip()


def main():
    subprocess.run([sys.argv[1], "checkpoint", "sample.h5"], check=True)
    with h5py.File("sample.h5", "r") as file:
        found = datasets(file)
        assert set(found) == set(SHAPES), sorted(found)
        for name, shape in SHAPES.items():
            data = found[name]
            assert data.shape == shape, (name, data.shape)
            if shape == ():  # HDF5 cannot filter a scalar: it lies in its header, which has a checksum
                assert data.dtype == numpy.int64 and data[()] == 1000
                continue
            assert data.fletcher32, name
            assert data.dtype == numpy.float32, (name, data.dtype)
            count = int(numpy.prod(shape))
            expected = (numpy.arange(count, dtype=numpy.float32) / 4).reshape(shape)
            assert numpy.array_equal(data[...], expected), name
        for name, value in ATTRIBUTES.items():
            assert file.attrs[name] == value, (name, file.attrs[name])
        assert file.attrs["created"].endswith("Z")

    # Changed with h5py and closed: no longer sealed, but still a checkpoint, as long as it is complete.
    assert problem("sample.h5") == "", problem("sample.h5")
    with h5py.File("sample.h5", "r+") as file:
        file.attrs["step"] = 121
        file["/model/bn1/running_mean"][...] = 0
    assert problem("sample.h5") == "", problem("sample.h5")
    with h5py.File("sample.h5", "r+") as file:
        del file.attrs["complete"]
    assert "incomplete" in problem("sample.h5"), problem("sample.h5")

    # A byte of the elements changed: h5py must refuse to read it, too.
    with h5py.File("sample.h5", "r") as file:
        offset = file["/model/conv1/weight"].id.get_chunk_info(0).byte_offset
    with open("sample.h5", "r+b") as raw:
        raw.seek(offset + 1000)
        byte = raw.read(1)[0]
        raw.seek(offset + 1000)
        raw.write(bytes([byte ^ 1]))
    with h5py.File("sample.h5", "r") as file:
        try:
            file["/model/conv1/weight"][...]
        except OSError:
            pass
        else:
            raise AssertionError("a changed byte was not noticed")
    print("checkpoint reads well with h5py")


main()
