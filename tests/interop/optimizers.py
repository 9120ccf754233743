# SPDX-License-Identifier: Apache-2.0
"""The optimizers of the reference: PyTorch's, and LARS and LAMB, which it has not, written down from their papers."""
from interop import torch


class Lars:
    """Layer-wise adaptive rate scaling (You et al. 2017) with the momentum over the scaled gradient."""
    TRUST, EPSILON = 0.001, 1e-9

    def __init__(self, parameters, case):
        self.parameters, self.case = list(parameters), case
        self.state = {p: {"momentum_buffer": torch.zeros_like(p)} for p in self.parameters}

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is None:
                continue
            adapt = p.dim() > 1  # not biases, not batch norm
            decay = self.case["weight_decay"] if adapt else 0.0
            ratio = 1.0
            if adapt:
                weight, gradient = p.double().norm().item(), p.grad.double().norm().item()
                if weight > 0 and gradient > 0:
                    ratio = self.TRUST * weight / (gradient + decay * weight + self.EPSILON)
            velocity = self.state[p]["momentum_buffer"]
            velocity.mul_(self.case["momentum"]).add_(p.grad + decay * p, alpha=self.case["lr"] * ratio)
            p.sub_(velocity)


class Lamb:
    """You et al. 2020, algorithm 2, with bias correction, as Lamb of timm (trust_clip=False, always_adapt for weights)
    without its clipping: only weights have a trust ratio."""
    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-6

    def __init__(self, groups, case):
        self.groups, self.case, self.steps = groups, case, 0
        self.state = {p: {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                      for group in groups for p in group["params"]}

    def zero_grad(self):
        for p in self.state:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                first, second = self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]
                first.copy_(self.BETA1 * first + (1 - self.BETA1) * p.grad)
                second.copy_(self.BETA2 * second + (1 - self.BETA2) * p.grad ** 2)
                corrected = first / (1 - self.BETA1 ** self.steps), second / (1 - self.BETA2 ** self.steps)
                update = corrected[0] / (corrected[1].sqrt() + self.EPSILON) + group["weight_decay"] * p
                weight, length = p.double().norm().item(), update.double().norm().item()
                ratio = weight / length if p.dim() > 1 and weight > 0 and length > 0 else 1.0
                p.sub_(self.case["lr"] * ratio * update)


NORM_TYPES = (torch.nn.BatchNorm2d, torch.nn.LayerNorm)


def decay_groups(model, case):
    """As set_weight_decay of torchvision's references, with norm_weight_decay or bias_weight_decay of 0."""
    groups = {"all": [], "none": []}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            norm = "norm" in case["no_decay"] and isinstance(module, NORM_TYPES)
            bias = "bias" in case["no_decay"] and name == "bias"
            groups["none" if norm or bias else "all"].append(parameter)
    return [{"params": groups["all"], "weight_decay": case["weight_decay"]},
            {"params": groups["none"], "weight_decay": 0.0}]


def make_optimizer(model, case):
    groups = decay_groups(model, case)
    if case["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, lr=case["lr"], weight_decay=case["weight_decay"])
    if case["optimizer"] == "lars":
        return Lars(model.parameters(), case)
    if case["optimizer"] == "lamb":
        return Lamb(groups, case)
    return torch.optim.SGD(groups, lr=case["lr"], momentum=case["momentum"], weight_decay=case["weight_decay"],
                           nesterov=case["nesterov"])


def make_average(model, case):
    """The average of the weights and of floating-point buffers. What get_ema_multi_avg_fn gives, which PyTorch 1.13 has not."""
    if not case["ema_decay"]:
        return None

    def average(mean, present, count):
        return torch.lerp(mean, present, 1 - case["ema_decay"]) if mean.is_floating_point() else present

    return torch.optim.swa_utils.AveragedModel(model, avg_fn=average, use_buffers=True)
