# SPDX-License-Identifier: Apache-2.0
"""Ten training steps by PyTorch and by convoy, from the same weights on the same batches in the same order.

The ResNets start as torchvision's zero_init_residual does, at small learning rates: from other starts rounding alone
grows past the tolerances of the tests within 10 steps, between two memory layouts of PyTorch too.
"""
import collections
import os
import sys

from interop import (Mlp, Toy, assert_close, assert_same_tensors, base_config, h5py, last_checkpoint, make_images, np,
                     randomize_buffers, read_metrics, relative_difference, resnet, run_convoy, torch, write_config,
                     write_images, write_weights)
from optimizers import make_optimizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import torch_models  # noqa: E402

STEPS = 10
DEFAULTS = dict(seed=11, model="mlp", hidden=[64, 32], size=8, channels=1, batch=16, optimizer="sgd", lr=0.01, momentum=0.9,
                weight_decay=1e-4, nesterov=False, microbatches=1, loss="cross_entropy", smoothing=0.0, slots=1e-3,
                freeze=[], no_decay=[], clip_norm=0, ema_decay=0, class_weights=[])
# Rectangular kernels, strides and paddings; groups; depthwise.
GROUPED = [
    {"type": "conv2d", "name": "tall", "out_channels": 16, "kernel_size": [3, 1], "padding": [1, 0]},
    {"type": "relu", "name": "relu1"},
    {"type": "conv2d", "name": "grouped", "out_channels": 32, "kernel_size": 3, "stride": [1, 2], "padding": 1,
     "groups": 4},
    {"type": "relu", "name": "relu2"},
    {"type": "conv2d", "name": "depthwise", "out_channels": 32, "kernel_size": [1, 3], "padding": [0, 1], "groups": 32},
    {"type": "relu", "name": "relu3"},
    {"type": "max_pool2d", "name": "pool", "kernel_size": [2, 1], "stride": [2, 1]},
    {"type": "flatten", "name": "flatten"},
    {"type": "linear", "name": "fc", "out_features": 10},
]
NORMS = [
    {"type": "conv2d", "name": "conv", "out_channels": 24, "kernel_size": 3, "padding": 1},
    {"type": "layer_norm", "name": "pixel_norm"},
    {"type": "relu", "name": "relu1"},
    {"type": "flatten", "name": "flatten"},
    {"type": "linear", "name": "fc1", "out_features": 40},
    {"type": "layer_norm", "name": "norm", "epsilon": 1e-3},
    {"type": "relu", "name": "relu2"},
    {"type": "linear", "name": "fc2", "out_features": 10},
]
DROPOUTS = [
    {"type": "conv2d", "name": "conv", "out_channels": 12, "kernel_size": 3, "padding": 1},
    {"type": "dropout", "name": "drop1", "probability": 0.2},
    {"type": "relu", "name": "relu"},
    {"type": "flatten", "name": "flatten"},
    {"type": "dropout", "name": "drop2"},
    {"type": "linear", "name": "fc", "out_features": 10},
]
SMOOTH = [
    {"type": "conv2d", "name": "conv", "out_channels": 12, "kernel_size": 3, "padding": 1},
    {"type": "gelu", "name": "gelu"},
    {"type": "avg_pool2d", "name": "pool", "kernel_size": 3, "stride": 2, "padding": 1},
    {"type": "silu", "name": "silu"},
    {"type": "flatten", "name": "flatten"},
    {"type": "linear", "name": "fc1", "out_features": 40},
    {"type": "tanh", "name": "tanh"},
    {"type": "linear", "name": "fc2", "out_features": 30},
    {"type": "sigmoid", "name": "sigmoid"},
    {"type": "linear", "name": "fc3", "out_features": 10},
]
CASES = {
    "toy": dict(model="toy", loss="mse", lr=0.05),
    "mlp": dict(lr=0.05),
    # By this seed PyTorch agrees with itself on two threads; by most a ReLU's input lies within rounding of 0.
    "resnet9": dict(seed=13, model="resnet9", size=32, channels=3, lr=0.0003, slots=1e-2),
    "resnet18_small": dict(model="resnet18", stem="small", size=32, channels=3, lr=0.005, slots=1e-2),
    "resnet18_digits": dict(model="resnet18", stem="small", batch=32, slots=1e-2),
    "resnet18_imagenet": dict(model="resnet18", stem="imagenet", size=64, channels=3, lr=0.003, slots=1e-2),
    "resnet50": dict(model="resnet50", stem="imagenet", size=64, channels=3, batch=8, lr=5e-4, slots=1e-2),
    "microbatches": dict(model="resnet18", stem="small", size=16, channels=3, batch=32, microbatches=2, slots=1e-2),
    "grouped_conv": dict(model="sequential", layers=GROUPED, channels=3, lr=0.02),
    "layer_norm": dict(model="sequential", layers=NORMS, channels=3, lr=0.02, microbatches=2),
    "dropout": dict(model="sequential", layers=DROPOUTS, channels=3, lr=0.02, microbatches=2),
    "smooth": dict(model="sequential", layers=SMOOTH, channels=3, lr=0.05),
    "adamw": dict(optimizer="adamw", lr=1e-3, weight_decay=0.05),
    "lars": dict(model="resnet18", stem="small", size=16, channels=3, optimizer="lars", lr=0.05, slots=1e-2),
    "nesterov": dict(lr=0.05, nesterov=True),
    "label_smoothing": dict(lr=0.05, smoothing=0.1),
    "mse_onehot": dict(lr=0.05, loss="mse"),
    "l1_onehot": dict(lr=0.05, loss="l1"),
    "bce": dict(lr=0.05, loss="bce", smoothing=0.1),
    "toy_l1": dict(model="toy", loss="l1", lr=0.05),
    "toy_bce": dict(model="toy", loss="bce", lr=0.05),
    "toy_probabilities": dict(model="toy", lr=0.05, smoothing=0.1),
    "freeze": dict(model="resnet18", stem="small", size=16, channels=3, batch=32, slots=1e-2,
                   freeze=["stem", "layer1", "layer3.0"]),
    "freeze_lars": dict(model="resnet18", stem="small", size=16, channels=3, optimizer="lars", lr=0.05, slots=1e-2,
                        freeze=["layer2", "layer4.1"]),
    "freeze_adamw": dict(optimizer="adamw", lr=1e-3, weight_decay=0.05, freeze=["fc1"]),
    "feature_extractor": dict(model="resnet50", stem="imagenet", size=64, channels=3, batch=8, lr=0.01,
                              freeze=["stem", "layer1", "layer2", "layer3", "layer4"]),
}
# Cases without the marker slow.
QUICK = {"toy", "mlp", "adamw", "nesterov", "label_smoothing", "mse_onehot", "l1_onehot", "bce", "toy_l1", "toy_bce", "toy_probabilities", "grouped_conv", "layer_norm", "dropout", "smooth",
         "freeze_adamw", "resnet18_digits"}


# ---- the reference

def make_model(case):
    torch.manual_seed(case["seed"])
    if case["model"] == "toy":
        return Toy()
    if case["model"] == "mlp":
        return Mlp(case["size"] ** 2 * case["channels"], case["hidden"], 10)
    if case["model"] == "sequential":
        return make_sequential(case)
    if case["model"] == "resnet9":
        model = torch_models.resnet9(torch, 10, case["channels"])
    else:
        model = resnet(case["model"], case["stem"], case["channels"])
    last = {"resnet9": "res2.bn.weight", "resnet18": "bn2.weight", "resnet50": "bn3.weight"}[case["model"]]
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
        elif parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.8, 1.2)
        if name.endswith(last):
            torch.nn.init.zeros_(parameter)
    if case["freeze"]:
        randomize_buffers(model)
    return model


def window(layer):
    """kernel_size, stride and padding of a convolution or a pooling."""
    values = layer["kernel_size"], layer.get("stride", 1), layer.get("padding", 0)
    return [tuple(value) if isinstance(value, list) else value for value in values]


class ChannelNorm(torch.nn.LayerNorm):
    """Over the channels of each sample, or of each pixel of each sample."""

    def forward(self, x):
        return super().forward(x) if x.dim() == 2 else super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def mix64(x):
    """SplitMix64's finaliser (Steele et al. 2014), of an array of uint64."""
    x = np.asarray(x, np.uint64) + np.uint64(0x9e3779b97f4a7c15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    return x ^ (x >> np.uint64(31))


def random_key(seed, name):
    digest = 0xcbf29ce484222325  # FNV-1a
    for byte in name.encode():
        digest = (digest ^ byte) * 0x100000001b3 % 2**64
    return int(mix64([digest ^ int(mix64([seed])[0])])[0])


class CounterDropout(torch.nn.Module):
    """Drops what convoy's dropout drops: a pure function of seed, unit, update, sample and element."""
    SEED = 1  # of base_config()

    def __init__(self, unit, name, probability):
        super().__init__()
        self.key = random_key(random_key(self.SEED, str(unit)), name)
        self.probability, self.update, self.first = probability, 0, 0

    def forward(self, x):
        channels_last = x if x.dim() == 2 else x.permute(0, 2, 3, 1)
        stream = mix64([self.key ^ int(mix64([self.update])[0])])[0]
        index = np.arange(x.numel(), dtype=np.uint64) + np.uint64(self.first * x[0].numel())
        bits = mix64(stream + index // np.uint64(2) * np.uint64(0x9e3779b97f4a7c15))
        words = np.where(index % np.uint64(2) == 0, bits & np.uint64(0xffffffff), bits >> np.uint64(32))
        kept = torch.from_numpy(words >= round(self.probability * 2**32)).reshape(channels_last.shape)
        kept = kept if x.dim() == 2 else kept.permute(0, 3, 1, 2)
        return x * kept / (1 - self.probability)


# By type: the module of a layer of the config, for an input of so many channels (or features).
MODULES = {
    "batch_norm2d": lambda layer, channels: torch.nn.BatchNorm2d(channels),
    "avg_pool2d": lambda layer, channels: torch.nn.AvgPool2d(*window(layer)),
    "conv2d": lambda layer, channels: torch.nn.Conv2d(channels, layer["out_channels"], *window(layer),
                                                      groups=layer.get("groups", 1)),
    "dropout": lambda layer, channels: CounterDropout(layer["unit"], layer["name"], layer.get("probability", 0.5)),
    "flatten": lambda layer, channels: torch.nn.Flatten(),
    "gelu": lambda layer, channels: torch.nn.GELU(),
    "layer_norm": lambda layer, channels: ChannelNorm(channels, eps=layer.get("epsilon", 1e-5)),
    "linear": lambda layer, channels: torch.nn.Linear(channels, layer["out_features"]),
    "max_pool2d": lambda layer, channels: torch.nn.MaxPool2d(*window(layer)),
    "relu": lambda layer, channels: torch.nn.ReLU(),
    "sigmoid": lambda layer, channels: torch.nn.Sigmoid(),
    "silu": lambda layer, channels: torch.nn.SiLU(),
    "tanh": lambda layer, channels: torch.nn.Tanh(),
}


def make_sequential(case):
    """The layers of a config as modules of the same names."""
    modules, x = collections.OrderedDict(), torch.zeros(1, case["channels"], case["size"], case["size"])
    for unit, layer in enumerate(case["layers"]):
        modules[layer["name"]] = module = MODULES[layer["type"]]({**layer, "unit": unit}, x.shape[1])
        x = module(x)
    return torch.nn.Sequential(modules)


UNITS = {"stem": ("conv1", "bn1"), "head": ("fc",)}


def frozen_modules(case):
    return [module for unit in case["freeze"] for module in UNITS.get(unit, (unit,))]


def freeze(model, case):
    """As PyTorch's users do it: no gradients, and batch norms that stay in evaluation."""
    for name in frozen_modules(case):
        model.get_submodule(name).eval().requires_grad_(False)


def make_data(case):
    """Inputs as files hold them, and the labels (or float targets)."""
    samples = STEPS * case["batch"]
    if case["model"] == "toy":
        random = np.random.RandomState(5)
        inputs, targets = random.randn(samples, 10), random.randn(samples, 5)
        if case["loss"] == "bce":
            targets = random.rand(samples, 5)
        if case["loss"] == "cross_entropy":
            targets = np.exp(targets) / np.exp(targets).sum(axis=1, keepdims=True)
        return inputs.astype(np.float32), targets.astype(np.float32)
    return make_images(samples, case["size"], case["channels"])


def make_loss(case):
    if case["loss"] == "cross_entropy":
        weight = torch.tensor(case["class_weights"]) if case["class_weights"] else None
        return torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=case["smoothing"])
    pointwise = {"mse": torch.nn.MSELoss(), "l1": torch.nn.L1Loss(), "bce": torch.nn.BCEWithLogitsLoss()}[case["loss"]]

    def of_labels(output, labels):  # smoothed as timm.loss.BinaryCrossEntropy does
        one_hot = torch.nn.functional.one_hot(labels, 10).to(output.dtype)
        return pointwise(output, (1 - case["smoothing"]) * one_hot + case["smoothing"] / 10)

    return pointwise if case["model"] == "toy" else of_labels


def share_of(case, part, batch):
    """Of the loss of a microbatch with these targets in that of the batch: means are weighted by the classes."""
    if not case["class_weights"]:
        return len(part) / len(batch)
    weights = torch.tensor(case["class_weights"])
    return weights[part].sum() / weights[batch].sum()


class StepStatistics:
    """One update of the running statistics a step, from the mean of the microbatches' statistics.

    PyTorch updates them in every forward: a momentum of 1 makes each forward leave its own statistics behind.
    """

    def __init__(self, model):
        self.norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
        for norm in self.norms:
            norm.momentum = 1.0

    def begin(self):
        self.before = [(n.running_mean.clone(), n.running_var.clone(), n.num_batches_tracked.clone())
                       for n in self.norms]
        self.sums = [(torch.zeros_like(n.running_mean), torch.zeros_like(n.running_var)) for n in self.norms]

    def after_forward(self):
        for norm, (mean, variance) in zip(self.norms, self.sums):
            mean += norm.running_mean
            variance += norm.running_var

    def end(self, microbatches):
        for norm, before, (mean, variance) in zip(self.norms, self.before, self.sums):
            norm.running_mean.copy_(0.9 * before[0] + 0.1 * mean / microbatches)
            norm.running_var.copy_(0.9 * before[1] + 0.1 * variance / microbatches)
            norm.num_batches_tracked.copy_(before[2] + 1)


def train_torch(model, case, inputs, targets, average=None, norms=None):
    """Trains in place; returns the losses and the optimizer's slots by parameter name. average: of the weights, which is
    updated; norms: takes those of the gradients before they are clipped."""
    optimizer, loss_of, losses = make_optimizer(model, case), make_loss(case), []
    parts = case["microbatches"]
    statistics = StepStatistics(model) if parts > 1 else None
    model.train()
    freeze(model, case)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = inputs[step * case["batch"]:(step + 1) * case["batch"]].chunk(parts)
        whole = targets[step * case["batch"]:(step + 1) * case["batch"]]
        t = whole.chunk(parts)
        if statistics:
            statistics.begin()
        total = 0.0
        for i in range(parts):
            for dropout in (module for module in model.modules() if isinstance(module, CounterDropout)):
                dropout.update, dropout.first = step, step * case["batch"] + i * case["batch"] // parts
            loss = loss_of(model(x[i]), t[i]) * share_of(case, t[i], whole)
            loss.backward()
            total += loss.item()
            if statistics:
                statistics.after_forward()
        if statistics:
            statistics.end(parts)
        if case["clip_norm"]:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), case["clip_norm"])
            if norms is not None:
                norms.append(norm.item())
        optimizer.step()
        if average is not None:
            average.update_parameters(model)
        losses.append(total)
    slots = {}
    names = {"momentum": "momentum_buffer"}
    if case["optimizer"] in ("adamw", "lamb"):
        names = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
    for slot, key in names.items():
        slots[slot] = {name: optimizer.state[p].get(key, torch.zeros_like(p)) if p in optimizer.state else torch.zeros_like(p)
                       for name, p in model.named_parameters()}
    return losses, slots


# ---- convoy

def train_convoy(folder, case, model, inputs, targets):
    """Returns the losses, and the checkpoint's path."""
    data_file, weights = os.path.join(folder, "data.h5"), os.path.join(folder, "weights.h5")
    write_weights(weights, model.state_dict())
    data = {"kind": "hdf5", "train": data_file, "shuffle": False}
    model_keys = {"name": case["model"], "weights": weights}
    if case["model"] == "toy":
        with h5py.File(data_file, "w") as file:
            file["inputs"], file["targets"] = inputs, targets
    else:
        write_images(data_file, inputs, targets)
        data.update(mean=[0.45], std=[0.25])
        model_keys["classes"] = 10
    if case["model"] == "sequential":
        model_keys["layers"] = case["layers"]
    if case["model"] == "mlp":
        model_keys["hidden"] = case["hidden"]
    if case["freeze"]:
        model_keys["freeze"] = case["freeze"]
    if "stem" in case:
        model_keys["stem"] = case["stem"]
    train = {"steps": STEPS, "global_batch_size": case["batch"], "loss": case["loss"]}
    if case["class_weights"]:
        data["class_weights"] = case["class_weights"]
    if case["smoothing"]:
        train["label_smoothing"] = case["smoothing"]
    optimizer = {"name": case["optimizer"], "lr": case["lr"], "weight_decay": case["weight_decay"]}
    if case["optimizer"] in ("sgd", "lars"):
        optimizer["momentum"] = case["momentum"]
    if case["nesterov"]:
        optimizer["nesterov"] = True
    for key in ("no_decay", "clip_norm"):
        if case[key]:
            optimizer[key] = case[key]
    if case["ema_decay"]:
        train["ema_decay"] = case["ema_decay"]
    config = base_config(model_keys, data, train, optimizer)
    config["parallel"] = {"microbatches": case["microbatches"]}
    write_config(os.path.join(folder, "run.toml"), config)
    run_convoy(["train", "run.toml"], folder)
    steps = read_metrics(folder, "step")
    assert [entry["step"] for entry in steps] == list(range(1, STEPS + 1))
    return [entry["loss"] for entry in steps], last_checkpoint(folder)


# ---- what is compared

def same_losses(losses, expected, tolerance=1e-4):
    """Of each step."""
    for i, (a, e) in enumerate(zip(losses, expected)):
        assert_close(f"loss of step {i + 1}", a, e, tolerance)
    worst = max(map(relative_difference, losses, expected))
    print(f"losses: {expected[0]:.6f} ... {expected[-1]:.6f}, largest relative difference {worst:.2e}")


def same_model(values, expected, tolerance=1e-3):
    """Every parameter and buffer after the last step."""
    assert_same_tensors("model", values, expected, tolerance)


def same_slots(case, slots, expected):
    """The optimizer's state, to the tolerance of the case."""
    for slot, tensors in expected.items():
        assert_same_tensors(slot, slots[slot], tensors, case["slots"])
