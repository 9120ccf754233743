# SPDX-License-Identifier: Apache-2.0
"""The predicted memory against the measured one, by `convoy bench`: of tensors, and of whole processes. The table in
docs/memory.md comes from `-s`.
"""
import json

import pytest

from behaviour import Folder, config

SMALL_IMAGES = {"kind": "synthetic", "image_size": 64, "samples": 64, "train": None, "validation": None}
MODELS = {
    "mlp": ({"name": "mlp", "hidden": [4096, 4096]}, {}, 64),
    "resnet18": ({"name": "resnet18", "classes": 1000}, SMALL_IMAGES, 16),
    "resnet50": ({"name": "resnet50", "classes": 1000}, SMALL_IMAGES, 16),
}
LAYOUTS = {
    "1 rank": (1, {}),
    "2 stages": (2, {"mode": "pipeline", "microbatches": 4}),
    "2 replicas": (2, {}),
    "scatter": (2, {"mode": "scatter"}),
}
# Tensors are counted exactly; a message may be under way for longer than it is assumed. Of a process other memory is
# estimated: of MPI, of threads, of blocks that the C library keeps.
TOLERANCE = 0.1
MIB = 1 << 20
# What is beside the tensors was estimated on CPUs with AVX-512. On one without it (Zen 3) less is resident: sometimes less
# than the tensors, of which not every page is written. The prediction was 12 to 21 % above what was measured there, and
# 26 % beside another program's load: there it is a bound, which must be no more than 10 % below, as everywhere.
with open("/proc/cpuinfo") as cpus:
    ABOVE = TOLERANCE if "avx512f" in cpus.read() else 0.35


@pytest.mark.parametrize("precision", ("fp32", "bf16"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", MODELS)
def test_prediction(model, layout, precision):
    description, data, batch = MODELS[model]
    ranks, parallel = LAYOUTS[layout]
    folder = Folder("run", config(description, data=data, parallel=parallel,
                                  train={"steps": 3, "global_batch_size": batch, "precision": precision}))
    code = folder.run(ranks, "bench", "run.toml", "--steps", "2", "--warmup", "1", "--json", "bench.json", timeout=240)
    assert code == 0, folder.stderr
    with open(folder.file("bench.json")) as file:
        result = json.load(file)["results"][0]
    columns = []
    for measured, predicted in (("backend_memory_bytes", "predicted_backend_memory_bytes"),
                                ("peak_memory_bytes", "predicted_memory_bytes")):
        assert len(result[measured]) == len(result[predicted]) == ranks
        above = ABOVE if measured == "peak_memory_bytes" else TOLERANCE
        for have, said in zip(result[measured], result[predicted]):
            text = f"{measured}: {said / MIB:.1f} MiB predicted, {have / MIB:.1f} measured"
            assert (1 - TOLERANCE) * have <= said <= (1 + above) * have, text
        columns += [f"{max(result[key]) / MIB:.0f}" for key in (predicted, measured)]
    print(f"\n| {model} | {precision} | {layout} | " + " | ".join(columns) + " |")
