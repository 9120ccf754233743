#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A convoy checkpoint as an ONNX model: export_onnx.py CHECKPOINT.h5 OUT.onnx [--fold] [--shape C,H,W | F].

The network is that of the config in the checkpoint (attribute `config`): the ResNets, mlp, toy and sequential models. The
input is float32 [N, C, H, W] (pixels in [0, 1]; signals [N, C, 1, L]) or [N, F]; data.mean and data.std are part of the
graph. The output is that of the network, before a softmax, as `convoy predict --out` writes it. N is dynamic; H and W
are, too, where --shape does not give them. --fold multiplies batch norms into the convolutions before them. Relies on
h5py, numpy and onnx (scripts/requirements/onnx.txt). Weights are written with the bits of the checkpoint unless they
are folded, which is computed in float64.
"""
import argparse
import math
import os
import sys
import tomllib

OPSET = 17
BATCH_NORM_EPSILON = 1e-5  # layers/batch_norm2d.h
RESNETS = {"resnet18": ("basic_block", (2, 2, 2, 2)), "resnet34": ("basic_block", (3, 4, 6, 3)),
           "resnet50": ("bottleneck", (3, 4, 6, 3)), "resnet101": ("bottleneck", (3, 4, 23, 3)),
           "resnet152": ("bottleneck", (3, 8, 36, 3))}


class Problem(Exception):
    pass


def need(module):
    try:
        return __import__(module)
    except ImportError:
        remedy = f"Debian: python3-{module}" if module in ("numpy", "h5py") else "scripts/install_deps.sh --tests, or pip"
        raise Problem(f"this needs the Python package {module} ({remedy})") from None


def pair(value):
    """[height, width] of a number or a list."""
    return list(value) if isinstance(value, list) else [value, value]


def one_dimensional(value, height):
    return [height, value]


def read_checkpoint(path, np, h5py):
    """The config as a dict, and the tensors of /model by torchvision's names."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise Problem(f"{path}: cannot be read as HDF5: {error}") from None
    with file:
        text = file.attrs.get("config")
        if text is None or "model" not in file:
            raise Problem(f"{path}: not a checkpoint of convoy (it needs the attribute config and the group /model)")
        tensors = {}

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                if item.is_virtual or item.external:
                    raise Problem(f"{path}: /model/{name} is stored in another file; such files are not read")
                tensors[name.replace("/", ".")] = np.array(item)

        file["model"].visititems(visit)
        facts = {name: str(file.attrs[name]) for name in ("step", "run", "program_version") if name in file.attrs}
    text = text.decode() if isinstance(text, bytes) else text
    return tomllib.loads(text), tensors, facts


class Graph:
    """ONNX nodes, one after the other; `at` is the name of the value that the next one reads."""

    def __init__(self, path, tensors, fold, np, onnx):
        self.path, self.tensors, self.fold, self.np, self.onnx = path, tensors, fold, np, onnx
        self.nodes, self.constants, self.used = [], [], set()
        self.at, self.count = "input", 0

    def weight(self, name):
        if name not in self.tensors:
            raise Problem(f"{self.path}: no tensor /model/{name.replace('.', '/')} (the config in it needs one)")
        self.used.add(name)
        return self.tensors[name]

    def constant(self, name, values):
        self.constants.append(self.onnx.numpy_helper.from_array(self.np.ascontiguousarray(values), name))
        return name

    def add(self, operator, inputs, **attributes):
        self.count += 1
        result = f"{operator.lower()}_{self.count}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [result], name=result, **attributes))
        self.at = result
        return result

    # ---- layers

    def normalize(self, mean, std, channels_axis):
        """(x - mean) / std per channel or feature; nothing if that changes nothing."""
        if all(m == 0 for m in mean) and all(s == 1 for s in std):
            return
        shape = [1, -1, 1, 1] if channels_axis else [1, -1]
        array = lambda values: self.np.array(values, "float32").reshape(shape)
        self.add("Sub", [self.at, self.constant("data.mean", array(mean))])
        self.add("Div", [self.at, self.constant("data.std", array(std))])

    def conv(self, name, stride, padding, groups=1, norm=None, signals=False):
        """norm: the name of a batch norm behind it."""
        np, weight = self.np, self.weight(name + ".weight")
        if signals:
            weight = weight[:, :, None, :]
        bias = self.weight(name + ".bias") if name + ".bias" in self.tensors else None
        if norm and self.fold:
            scale, shift = self.scale_and_shift(norm)
            weight = (weight.astype("float64") * scale[:, None, None, None]).astype("float32")
            bias = (shift + (0 if bias is None else bias.astype("float64") * scale)).astype("float32")
        inputs = [self.at, self.constant(name + ".weight", weight)]
        if bias is not None:
            inputs.append(self.constant(name + ".bias", np.asarray(bias, "float32")))
        self.add("Conv", inputs, kernel_shape=weight.shape[2:], strides=stride, pads=padding * 2, group=groups)
        if norm and not self.fold:
            self.batch_norm(norm)

    def scale_and_shift(self, name):
        np = self.np
        gamma, beta, mean, variance = (self.weight(f"{name}.{part}").astype("float64")
                                       for part in ("weight", "bias", "running_mean", "running_var"))
        scale = gamma / np.sqrt(variance + BATCH_NORM_EPSILON)
        return scale, beta - mean * scale

    def batch_norm(self, name):
        parts = [self.constant(f"{name}.{part}", self.weight(f"{name}.{part}"))
                 for part in ("weight", "bias", "running_mean", "running_var")]
        self.add("BatchNormalization", [self.at, *parts], epsilon=BATCH_NORM_EPSILON)

    def relu(self):
        self.add("Relu", [self.at])

    def linear(self, name):
        weight = self.weight(name + ".weight")
        inputs = [self.at, self.constant(name + ".weight", weight)]
        if name + ".bias" in self.tensors:
            inputs.append(self.constant(name + ".bias", self.weight(name + ".bias")))
        self.add("Gemm", inputs, transB=1)

    def global_avg_pool(self):
        self.add("GlobalAveragePool", [self.at])
        self.add("Flatten", [self.at], axis=1)

    def global_max_pool(self):
        self.add("GlobalMaxPool", [self.at])
        self.add("Flatten", [self.at], axis=1)

    def pool(self, operator, kernel, stride, padding):
        more = {"count_include_pad": 1} if operator == "AveragePool" else {}
        self.add(operator, [self.at], kernel_shape=kernel, strides=stride, pads=padding * 2, **more)

    def gelu(self):
        """x / 2 * (1 + erf(x / sqrt(2)))."""
        x, f32 = self.at, self.np.float32
        name = f"gelu_{self.count}"
        self.add("Mul", [x, self.constant(name + ".root", f32(1 / math.sqrt(2)))])
        self.add("Erf", [self.at])
        self.add("Add", [self.at, self.constant(name + ".one", f32(1))])
        self.add("Mul", [x, self.at])
        self.add("Mul", [self.at, self.constant(name + ".half", f32(0.5))])

    def silu(self):
        x = self.at
        self.add("Mul", [x, self.add("Sigmoid", [x])])

    def layer_norm(self, name, epsilon, images):
        """Over the channels: the last axis of [N, C], axis 1 of images."""
        if images:
            self.add("Transpose", [self.at], perm=[0, 2, 3, 1])
        self.add("LayerNormalization", [self.at, self.constant(name + ".weight", self.weight(name + ".weight")),
                                        self.constant(name + ".bias", self.weight(name + ".bias"))], axis=-1, epsilon=epsilon)
        if images:
            self.add("Transpose", [self.at], perm=[0, 3, 1, 2])

    def block(self, kind, name, stride):
        """A residual block; torchvision's names."""
        x = self.at
        convolutions = [(stride, 1), (1, 1)] if kind == "basic_block" else [(1, 0), (stride, 1), (1, 0)]
        for i, (step, padding) in enumerate(convolutions, 1):
            self.conv(f"{name}.conv{i}", [step] * 2, [padding] * 2, norm=f"{name}.bn{i}")
            if i < len(convolutions):
                self.relu()
        y = self.at
        if f"{name}.downsample.0.weight" in self.tensors:
            self.at = x
            self.conv(f"{name}.downsample.0", [stride] * 2, [0, 0], norm=f"{name}.downsample.1")
            x = self.at
        self.add("Add", [y, x])
        self.relu()


def build_resnet(graph, model):
    kind, blocks = RESNETS[model["name"]]
    imagenet = model.get("stem", "imagenet") == "imagenet"
    graph.conv("conv1", [2, 2] if imagenet else [1, 1], [3, 3] if imagenet else [1, 1], norm="bn1")
    graph.relu()
    if imagenet:
        graph.pool("MaxPool", [3, 3], [2, 2], [1, 1])
    for stage, count in enumerate(blocks, 1):
        for block in range(count):
            graph.block(kind, f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1)
    graph.global_avg_pool()
    graph.linear("fc")


def build_resnet9(graph):
    def conv(name):
        graph.conv(name + ".conv", [1, 1], [1, 1], norm=name + ".bn")
        graph.relu()

    conv("prep")
    for name, residual in (("layer1", True), ("layer2", False), ("layer3", True)):
        conv(name)
        graph.pool("MaxPool", [2, 2], [2, 2], [0, 0])
        if residual:
            shortcut = graph.at
            conv(name + ".residual.res1")
            conv(name + ".residual.res2")
            graph.add("Add", [graph.at, shortcut])
    graph.global_max_pool()
    graph.linear("fc")
    graph.add("Mul", [graph.at, graph.constant("scale", graph.np.array(0.125, "float32"))])


def build_linear_layers(graph, names, flatten):
    if flatten:
        graph.add("Flatten", [graph.at], axis=1)
    for i, name in enumerate(names):
        graph.linear(name)
        if i + 1 < len(names):
            graph.relu()


def build_sequential(graph, layers, images):
    """images: whether the input has four axes."""
    names = [layer.get("name", str(i)) for i, layer in enumerate(layers)]
    skipped = None
    for i, (name, layer) in enumerate(zip(names, layers)):
        kind = layer["type"]
        follows = layers[i + 1]["type"] if i + 1 < len(layers) else ""
        if i == skipped:
            continue
        flat = kind.endswith("1d")
        size = (lambda value, height: one_dimensional(value, height)) if flat else (lambda value, _: pair(value))
        if kind in ("conv2d", "conv1d"):
            norm = names[i + 1] if follows == "batch_norm2d" else None
            graph.conv(name, size(layer.get("stride", 1), 1), size(layer.get("padding", 0), 0), layer.get("groups", 1), norm, flat)
            skipped = i + 1 if norm else None
        elif kind in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"):
            kernel = layer["kernel_size"]
            graph.pool("MaxPool" if kind.startswith("max") else "AveragePool", size(kernel, 1),
                       size(layer.get("stride", kernel), 1), size(layer.get("padding", 0), 0))
        elif kind == "batch_norm2d":
            graph.batch_norm(name)
        elif kind in ("relu", "tanh", "sigmoid"):
            graph.add({"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}[kind], [graph.at])
        elif kind in ("gelu", "silu", "global_avg_pool", "global_max_pool"):
            getattr(graph, kind)()
        elif kind == "flatten":
            graph.add("Flatten", [graph.at], axis=1)
        elif kind == "linear":
            graph.linear(name)
        elif kind == "layer_norm":
            graph.layer_norm(name, layer.get("epsilon", 1e-5), images)
        elif kind in ("basic_block", "bottleneck"):
            graph.block(kind, name, layer.get("stride", 1))
        elif kind != "dropout":  # which does nothing in evaluation
            raise Problem(f"{graph.path}: layers of type {kind} are not known here")
        images = images and kind not in ("flatten", "global_avg_pool", "global_max_pool")


def input_shape(config, tensors, given):
    """The axes of the input behind N: numbers, or names of those that are dynamic."""
    model, data = config["model"], config["data"]
    layers = model.get("layers", [])
    first = layers[0]["type"] if layers else {"mlp": "flatten", "toy": "linear"}.get(model["name"], "conv2d")
    if given:
        return given
    size, channels, features = (data.get(key, 0) for key in ("image_size", "channels", "features"))
    if features > 0 or first == "linear":
        return [features or "features"]
    images = data["kind"] != "hdf5" or size > 0 or len(data.get("mean", [0])) > 1 or first != "flatten"
    if images and not any(layer["type"].endswith("1d") for layer in layers):
        first_weight = next((t for name, t in tensors.items() if name in ("conv1.weight", f"{layers[0].get('name', '0')}.weight"
                                                                          if layers else "")), None)
        if not channels and first == "conv2d" and first_weight is not None:
            channels = int(first_weight.shape[1]) * (layers[0].get("groups", 1) if layers else 1)
        return [channels or "channels", size or "height", size or "width"]
    if images:
        return [channels or "channels", 1, "length"]
    # A network that flattens: samples of any shape as vectors, in the order C, H, W.
    weight = tensors.get("fc1.weight")
    return [int(weight.shape[1]) if weight is not None else "features"]


def export(arguments):
    np, h5py, onnx = need("numpy"), need("h5py"), need("onnx")
    config, tensors, facts = read_checkpoint(arguments.checkpoint, np, h5py)
    model, data = config["model"], config["data"]
    shape = input_shape(config, tensors, arguments.shape)
    images = len(shape) == 3
    graph = Graph(arguments.checkpoint, tensors, arguments.fold, np, onnx)
    graph.normalize(data.get("mean", [0]), data.get("std", [1]), images)
    if model["name"] == "resnet9":
        build_resnet9(graph)
    elif model["name"] in RESNETS:
        build_resnet(graph, model)
    elif model["name"] == "mlp":
        build_linear_layers(graph, [f"fc{i + 1}" for i in range(len(model["hidden"]) + 1)], images)
    elif model["name"] == "toy":
        build_linear_layers(graph, ["net1", "net2"], False)
    elif model["name"] == "sequential":
        build_sequential(graph, model["layers"], images)
    else:
        raise Problem(f"{arguments.checkpoint}: model.name = \"{model['name']}\" is not known here")
    unused = [name for name in tensors if name not in graph.used and not name.endswith("num_batches_tracked")]
    if unused:
        raise Problem(f"{arguments.checkpoint}: the config in it has no layer for {', '.join(sorted(unused))}")
    graph.nodes[-1].output[0] = "output"
    last = [constant for constant in graph.constants if constant.name in graph.nodes[-1].input]
    outputs = last[0].dims[0] if graph.nodes[-1].op_type == "Gemm" else "outputs"
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    result = helper.make_model(
        helper.make_graph(graph.nodes, model["name"], [helper.make_tensor_value_info("input", f32, ["N", *shape])],
                          [helper.make_tensor_value_info("output", f32, ["N", outputs])], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)], producer_name="convoy", ir_version=8)
    helper.set_model_props(result, {**facts, "input": "pixels in [0, 1]" if images and data["kind"] != "synthetic" else "float32"})
    onnx.checker.check_model(result, full_check=True)
    onnx.save(result, arguments.out)
    count = sum(math.prod(constant.dims) for constant in graph.constants)
    print(f"{arguments.out}: {model['name']}, input [N, {', '.join(map(str, shape))}], {len(graph.nodes)} nodes, {count} parameters"
          f"{', batch norms folded' if arguments.fold else ''}")


def parse_shape(text):
    try:
        shape = [int(part) for part in text.split(",")]
    except ValueError:
        shape = []
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"\"{text}\" is neither C,H,W nor F")
    return shape


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", metavar="CHECKPOINT.h5")
    parser.add_argument("out", metavar="OUT.onnx")
    parser.add_argument("--fold", action="store_true", help="multiply batch norms into the convolutions before them")
    parser.add_argument("--shape", type=parse_shape, help="of a sample: C,H,W of images, F of vectors; default: as the config says")
    arguments = parser.parse_args()
    try:
        export(arguments)
    except (Problem, OSError) as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
