# SPDX-License-Identifier: Apache-2.0
"""Folders of JPEGs, evaluation and random crops against torchvision.

The pictures are made here: sums of waves with edges and noise, in the sizes, samplings and modes of photographs.
Usage: test_images.py IMAGE_SAMPLES [FOLDER]; with FOLDER, a folder of class folders of JPEGs, evaluation is compared on
that instead, and the numbers are printed.
"""
import os
import subprocess
import sys

from interop import Report, np, temporary_folder, torch

from PIL import Image
from torchvision import datasets, transforms

SIZE, RESIZE = 224, 256
# torchvision does not turn pictures by their Exif block and convoy does, so those have none.
SHAPES = [(500, 375), (375, 500), (333, 500), (640, 480), (1024, 768), (800, 600), (257, 256), (224, 224), (90, 120),
          (500, 150), (2000, 1500)]


def samples(program, *words):
    result = subprocess.run([program, *map(str, words)], capture_output=True)
    if result.returncode:
        sys.exit(f"FAILED: {words}: {result.stderr.decode()}")
    return result.stdout


def draw(width, height, seed):
    """A picture with the spectrum of a photograph, roughly: smooth shades, edges, some noise."""
    random = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    image = np.zeros((height, width, 3), np.float32)
    for octave in range(1, 7):
        angle, phase = random.uniform(0, np.pi), random.uniform(0, 2 * np.pi, 3)
        wave = 2 * np.pi * 2 ** octave / max(width, height) * (np.cos(angle) * x + np.sin(angle) * y)
        image += 60 / octave * np.sin(wave[..., None] + phase)
    for _ in range(12):
        center, radius = random.uniform(0, 1, 2) * (width, height), random.uniform(0.05, 0.3) * min(width, height)
        image[(x - center[0]) ** 2 + (y - center[1]) ** 2 < radius ** 2] += random.uniform(-60, 60, 3)
    return (image + 128 + random.normal(0, 4, image.shape)).clip(0, 255).astype(np.uint8)


def make_pictures(folder):
    """Class folders with names that sort in their own way, and files of all kinds in them."""
    for i, (width, height) in enumerate(SHAPES):
        image = Image.fromarray(draw(width, height, i))
        path = os.path.join(folder, ["b", "B", "a-1", "a"][i % 4], ["", "deep", "deep-er"][i % 3])
        os.makedirs(path, exist_ok=True)
        for subsampling in (0, 2):
            image.save(os.path.join(path, f"{i}-{subsampling}.jpg"), quality=90, subsampling=subsampling,
                       progressive=bool(i % 2))
    image = Image.fromarray(draw(400, 300, 99))
    image.convert("L").save(os.path.join(folder, "a", "grey.JPEG"), quality=90)
    image.convert("CMYK").save(os.path.join(folder, "a", "cmyk.JPG"), quality=90)
    open(os.path.join(folder, "a", "notes.txt"), "w").close()


def check_order(report, program, folder):
    expected = datasets.ImageFolder(folder)
    lines = [line.split("\t") for line in os.fsdecode(samples(program, "list", folder)).splitlines()]
    actual = [(path, int(label)) for path, label in lines]
    report.check(actual == expected.samples, f"order: {actual[:3]}, expected {expected.samples[:3]}")
    print(f"order: {len(actual)} files in {len(expected.classes)} classes as torchvision has them")


def check_evaluation(report, program, folder):
    """Mean absolute difference of each picture, in grey levels of 255."""
    transform = transforms.Compose([transforms.Resize(RESIZE), transforms.CenterCrop(SIZE)])
    pictures = datasets.ImageFolder(folder, transform)
    raw = np.frombuffer(samples(program, "eval", folder, SIZE, RESIZE), np.uint8)
    actual = raw.reshape(-1, SIZE, SIZE, 3).astype(np.int16)
    differences = np.array([np.abs(np.asarray(picture, np.int16) - actual[i]).mean()
                            for i, (picture, _) in enumerate(pictures)])
    worst = int(differences.argmax())
    print(f"evaluation: {len(differences)} pictures, mean difference {differences.mean():.3f} of 255, median "
          f"{np.median(differences):.3f}, largest {differences[worst]:.3f} ({pictures.samples[worst][0]})")
    report.check(differences.max() < 1, f"evaluation: {pictures.samples[worst][0]} differs by {differences[worst]:.3f}")


def kolmogorov_smirnov(a, b):
    """Largest difference of the two distributions, and below which it lies with a probability of 99.9 %."""
    both = np.sort(np.concatenate([a, b]))
    statistic = np.abs(np.searchsorted(np.sort(a), both, side="right") / len(a)
                       - np.searchsorted(np.sort(b), both, side="right") / len(b)).max()
    return statistic, 1.95 * np.sqrt((len(a) + len(b)) / (len(a) * len(b)))


def check_crops(report, program, count=4000):
    """Both sides have fixed seeds, so that the outcome is always the same."""
    torch.manual_seed(1)
    for width, height in ((500, 375), (300, 400), (1000, 100)):
        picture = Image.new("RGB", (width, height))
        expected = np.array([transforms.RandomResizedCrop.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3))
                             for _ in range(count)], np.float64)
        text = samples(program, "boxes", width, height, count).decode()
        actual = np.array([line.split() for line in text.splitlines()], np.float64)
        for name, value in (("area", lambda b: b[:, 2] * b[:, 3]), ("ratio", lambda b: b[:, 3] / b[:, 2]),
                            ("top", lambda b: b[:, 0]), ("left", lambda b: b[:, 1])):
            statistic, limit = kolmogorov_smirnov(value(actual), value(expected))
            print(f"crops of {width}x{height}: {name} differs by {statistic:.4f} (limit {limit:.4f})")
            report.check(statistic < limit, f"crops of {width}x{height}: {name} is distributed in another way")


def main():
    program, report = sys.argv[1], Report()
    if len(sys.argv) > 2:
        check_order(report, program, sys.argv[2])
        check_evaluation(report, program, sys.argv[2])
    else:
        with temporary_folder() as folder:
            make_pictures(folder)
            check_order(report, program, folder)
            check_evaluation(report, program, folder)
        check_crops(report, program)
    report.finish()


if __name__ == "__main__":
    main()
