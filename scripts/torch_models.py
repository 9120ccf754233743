# SPDX-License-Identifier: Apache-2.0
"""convoy's networks in PyTorch, for the programs that time both: resnet9 to resnet152, mlp and toy, with as many
parameters and the same operations. Runs with torch, which the caller hands in. torchvision is not needed.
"""


def build(torch, name, classes, inputs=784, hidden=(), stem="imagenet"):
    """The network that convoy's config calls `name`: model.classes, model.hidden and model.stem as there."""
    if name == "toy":
        return torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(inplace=True), torch.nn.Linear(10, classes))
    if name == "mlp":
        return mlp(torch, inputs, hidden, classes)
    if name == "resnet9":
        return resnet9(torch, classes)
    return resnet(torch, int(name.removeprefix("resnet")), classes, stem)


def mlp(torch, inputs, hidden, classes):
    layers, nn = [torch.nn.Flatten()], torch.nn
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(inplace=True)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def resnet9(torch, classes, channels=3):
    """The network of the DAWNBench entries for CIFAR-10 (Page 2018), with convoy's names of parameters."""
    nn = torch.nn

    def convolution(inputs, outputs):
        return {"conv": nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), "bn": nn.BatchNorm2d(outputs), "relu": nn.ReLU()}

    def sequence(modules):
        result = nn.Sequential()
        for name, module in modules.items():
            result.add_module(name, module)
        return result

    class Residual(nn.Module):
        """x + f(x) of two convolutions."""

        def __init__(self, width):
            super().__init__()
            self.res1, self.res2 = sequence(convolution(width, width)), sequence(convolution(width, width))

        def forward(self, x):
            return x + self.res2(self.res1(x))

    class Scale(nn.Module):
        def forward(self, x):
            return 0.125 * x

    return sequence({
        "prep": sequence(convolution(channels, 64)),
        "layer1": sequence({**convolution(64, 128), "pool": nn.MaxPool2d(2), "residual": Residual(128)}),
        "layer2": sequence({**convolution(128, 256), "pool": nn.MaxPool2d(2)}),
        "layer3": sequence({**convolution(256, 512), "pool": nn.MaxPool2d(2), "residual": Residual(512)}),
        "pool": nn.AdaptiveMaxPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(512, classes, bias=False), "scale": Scale()})


BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def resnet(torch, depth, classes=1000, stem="imagenet"):
    """ResNet (v1.5 from 50 layers on), as torchvision's; stem small: a 3x3 convolution, no max-pool."""
    nn = torch.nn

    def convolution(inputs, outputs, kernel, stride=1):
        return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)

    class Block(nn.Module):
        """Two 3x3 convolutions, or 1x1, 3x3 and 1x1, beside a shortcut."""

        def __init__(self, inputs, channels, stride):
            super().__init__()
            shapes = [(inputs, channels, 3, stride), (channels, channels, 3, 1)]
            if depth >= 50:
                shapes = [(inputs, channels, 1, 1), (channels, channels, 3, stride), (channels, 4 * channels, 1, 1)]
            layers = []
            for shape in shapes:
                layers += [convolution(*shape), nn.BatchNorm2d(shape[1]), nn.ReLU(inplace=True)]
            self.path = nn.Sequential(*layers[:-1])
            self.relu = layers[-1]
            self.outputs = shapes[-1][1]
            self.shortcut = None
            if stride != 1 or inputs != self.outputs:
                self.shortcut = nn.Sequential(convolution(inputs, self.outputs, 1, stride),
                                              nn.BatchNorm2d(self.outputs))

        def forward(self, x):
            kept = x if self.shortcut is None else self.shortcut(x)
            x = self.path(x)
            x += kept
            return self.relu(x)

    first = convolution(3, 64, 7, 2) if stem == "imagenet" else convolution(3, 64, 3)
    layers = [first, nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if stem == "imagenet":
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, blocks in enumerate(BLOCKS[depth]):
        for number in range(blocks):
            layers.append(Block(inputs, 64 << stage, 2 if stage > 0 and number == 0 else 1))
            inputs = layers[-1].outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
