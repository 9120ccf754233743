// SPDX-License-Identifier: Apache-2.0
//
// The models that model.name chooses, as lists of units, and their options. Parameter names and shapes are
// torchvision's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "layers/base/option_choice.h"
#include "layers/batch_norm2d.h"
#include "layers/conv2d.h"
#include "layers/dropout.h"
#include "layers/elementwise.h"
#include "layers/layer_norm.h"
#include "layers/linear.h"
#include "layers/model.h"
#include "layers/models/recompute.h"
#include "layers/pooling.h"
#include "layers/relu.h"
#include "layers/residual.h"

namespace convoy {

/// Linear 10 -> 10 (net1), ReLU, Linear 10 -> outputs (net2): the network of PyTorch's DDP tutorial (outputs 5).
std::vector<Unit> toy_model(std::int64_t outputs);

/// Flatten, then Linear + ReLU for each hidden size (fc1, fc2, ...), then Linear to `outputs`.
std::vector<Unit> mlp_model(const std::vector<std::int64_t>& hidden, std::int64_t outputs);

enum class Stem {
  kImagenet,  ///< 7x7 stride 2, then 3x3 max-pool stride 2
  kSmall      ///< 3x3 stride 1, no max-pool: for images of about 8 to 64 pixels
};
CONVOY_OPTION_ENUM(Stem, "imagenet", "small");

/// ResNet (He et al. 2016; bottleneck v1.5) of depth 18, 34, 50, 101 or 152 as in torchvision.
std::vector<Unit> resnet_model(int depth, Stem stem, std::int64_t outputs);

/// ResNet-9 (Page 2018): prep, layer1 and its residual block, layer2, layer3 and its residual block, head.
std::vector<Unit> resnet9_model(std::int64_t outputs);

/// The layers of a sequential model by name.
using LayerChoice =
    std::variant<LinearOptions, ReluOptions, TanhOptions, SigmoidOptions, GeluOptions, SiluOptions, Conv2dOptions,
                 Conv1dOptions, BatchNorm2dOptions, LayerNormOptions, MaxPool2dOptions, MaxPool1dOptions,
                 AvgPool2dOptions, AvgPool1dOptions, GlobalAvgPoolOptions, GlobalMaxPoolOptions, FlattenOptions,
                 DropoutOptions, BasicBlockOptions, BottleneckOptions>;

/// One layer of a [[model.layers]] list.
struct LayerOptions {
  std::string name;  ///< path of its parameters
  LayerChoice layer = ReluOptions();

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    visit_choice_name(v, "type", o.layer, anything().required(), "what the layer is");
    v.key("name", o.name, anything(), "its name in checkpoints; default: its index, from 0");
    visit_choice_options(v, "type", o.layer);
  }
  bool operator==(const LayerOptions&) const = default;
};

/// The layers of the list, one unit each; a ReLU after a batch norm or a linear layer is fused into it.
std::vector<Unit> sequential_model(const std::vector<LayerOptions>& layers);

/// The names of models.
[[nodiscard]] std::span<const std::string_view> model_names();

/// [model]
struct ModelOptions {
  std::string name = "toy";                  ///< one of model_names()
  std::int64_t classes = 0;                  ///< 0: from the data
  std::vector<std::int64_t> hidden = {256};  ///< mlp: widths of the hidden layers
  Stem stem = Stem::kImagenet;               ///< resnet*
  std::string weights;                       ///< HDF5 file whose /model the training starts from; empty: none
  bool reset_head = false;                   ///< with weights: the last layer starts from random weights
  std::vector<std::string> freeze;           ///< units that stay as they are, or prefixes of units' names
  RecomputeOptions recompute;                ///< units whose forward is run again in backward
  std::vector<LayerOptions> layers;          ///< sequential

  /// Whether a layer takes signals: inputs [N, C, L] are then [N, C, 1, L].
  [[nodiscard]] bool takes_signals() const {
    return std::any_of(layers.begin(), layers.end(), [](const LayerOptions& one) {
      return std::holds_alternative<Conv1dOptions>(one.layer) || std::holds_alternative<MaxPool1dOptions>(one.layer) ||
             std::holds_alternative<AvgPool1dOptions>(one.layer);
    });
  }
  [[nodiscard]] bool is_resnet() const { return name.starts_with("resnet"); }
  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    const auto owned = [&](const Rule& rule, std::initializer_list<std::string_view> models) {
      return rule.only_for("model.name", o.name, models);
    };
    v.key("name", o.name, one_of(model_names()).required(), "which network");
    v.key("classes", o.classes, between(0, 1e7), "length of the output; 0: as many as the data has");
    v.key("hidden", o.hidden, owned(between(1, 1e7), {"mlp"}), "widths of the hidden layers");
    v.key("stem", o.stem, owned(anything(), {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"}),
          "imagenet: 7x7 stride 2 and max-pool; small: 3x3 stride 1, for small images");
    v.key("weights", o.weights, input_file(),
          "start from the /model group of this HDF5 file; \"\": from random weights");
    v.key("reset_head", o.reset_head,
          anything().only_if(!o.weights.empty(), "is ignored without model.weights (give the file to start from)"),
          "with weights: the last layer starts from random weights");
    v.key("freeze", o.freeze, anything(),
          "units that stay as they are (\"stem\", \"layer1.0\"; \"layer1\": all of it), batch-norm statistics, too");
    v.key("recompute", o.recompute, one_of(kRecomputeNames),
          "units that keep only their input and run forward again in backward: less memory, more time; blocks: all but "
          "the head");
    v.tables("layers", o.layers, owned(anything(), {"sequential"}), "one for each layer of a sequential model");
  }
  bool operator==(const ModelOptions&) const = default;
};

/// The model of that name, with `outputs` outputs (sequential: as its layers say).
std::vector<Unit> make_model(const ModelOptions& options, std::int64_t outputs);

}  // namespace convoy
