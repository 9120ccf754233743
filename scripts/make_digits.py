#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes app/configs/digits.h5 from the handwritten digits that scikit-learn carries.

1,797 images of 8x8 pixels with values 0..16 become /train and /validation, each with `images` (uint8 [N, 8, 8, 1],
value * 255 / 16 rounded) and `labels` (int64 [N]). The split is fixed: a seeded shuffle, then 36 images of each digit go
to validation (360 in all; 1,437 to train). The same libraries write the same bytes.

Usage: make_digits.py [OUT.h5]
"""
import os
import sys

import h5py
import numpy as np
from sklearn.datasets import load_digits

SEED = 1998
VALIDATION_PER_CLASS = 36


def split(labels):
    """Indices of the training and of the validation images, each in shuffled order."""
    order = np.random.RandomState(SEED).permutation(len(labels))
    rank_in_class = np.zeros(len(labels), np.int64)
    for digit in range(10):
        rank_in_class[labels[order] == digit] = np.arange(np.sum(labels == digit))
    held_out = rank_in_class < VALIDATION_PER_CLASS
    return order[~held_out], order[held_out]


def main():
    default = os.path.join(os.path.dirname(__file__), "..", "app", "configs", "digits.h5")
    out = sys.argv[1] if len(sys.argv) > 1 else default
    digits = load_digits()
    images = np.rint(digits.images * 255 / 16).astype(np.uint8)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    with h5py.File(out, "w", libver="earliest") as file:
        for name, indices in zip(("train", "validation"), split(labels)):
            group = file.create_group(name)
            group.create_dataset("images", data=images[indices], track_times=False)
            group.create_dataset("labels", data=labels[indices], track_times=False)
            group.attrs["class_names"] = np.array([str(digit) for digit in range(10)], "S1")
            print(f"{name}: {len(indices)} images, per class {np.bincount(labels[indices]).tolist()}")


if __name__ == "__main__":
    main()
