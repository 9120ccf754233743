# SPDX-License-Identifier: Apache-2.0
"""convoy pack, and training from what it has packed."""
import shutil

from behaviour import config


def packed(folder, *words, code=0, **options):
    """Runs `convoy pack`, which must end with `code`; what it prints."""
    actual = folder.run(1, "pack", *words, **options)
    assert actual == code, f"pack {words}:\n{folder.stdout}{folder.stderr}"
    return folder.stdout


def losses(folder, net, ranks=1, **data):
    """Of one whole epoch from this data, in its shuffled order."""
    folder.configure(config(net, data={"kind": "hdf5", "validation": None, **data},
                            train={"steps": None, "epochs": 1, "global_batch_size": 8}))
    shutil.rmtree(folder.file("runs"), ignore_errors=True)
    folder.train(ranks)
    return folder.losses(str)
