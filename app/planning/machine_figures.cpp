// SPDX-License-Identifier: Apache-2.0
#include "app/planning/machine_figures.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <vector>

#include "app/base/toml_keys.h"
#include "app/config/toml_text.h"
#include "layers/base/did_you_mean.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

using M = MachineFigures;

// The spreads say how far what is stated may be wrong: a bandwidth of a data sheet by a fifth, an assumed time of a
// kernel by a factor of two.
constexpr Figure kFigures[] = {
    {"ranks_per_node", &M::ranks_per_node, true, true, 1 << 20, 0, "GPUs of a node"},
    {"flops", &M::flops, true, false, 1e300, 0, "of a GPU per second, at best"},
    {"flops_efficiency", &M::flops_efficiency, true, false, 1, 0.3, "share that products of full tiles reach"},
    {"multiprocessors", &M::multiprocessors, false, true, 1e6, 0, "of a GPU, which share the tiles of a product"},
    {"memory_bytes_per_second", &M::memory_bytes_per_second, true, false, 1e300, 0, "of a GPU, at best"},
    {"memory_efficiency", &M::memory_efficiency, true, false, 1, 0.2, "share that operations reach"},
    {"memory_gb", &M::memory_gb, true, false, 1e300, 0, "of a GPU"},
    {"element_bytes", &M::element_bytes, true, true, 4, 0, "of activations: 2 or 4"},
    {"kernel_seconds", &M::kernel_seconds, false, false, 1, 0.7, "of each kernel, however small"},
    {"step_seconds", &M::step_seconds, false, false, 3600, 0.7, "of each step, whatever its size"},
    {"contention", &M::contention, false, false, 1, 0.5, "share of its speed that computing loses during a reduction"},
    {"jitter", &M::jitter, false, false, 10, 0.7, "standard deviation of a rank's step over its mean"},
    {"input_samples_per_second", &M::input_samples_per_second, false, false, 1e300, 0,
     "that a node reads and prepares"},
    {"node.latency", &M::node_latency, false, false, 10, 0, "seconds of a message from GPU to GPU"},
    {"node.bytes_per_second", &M::node_bandwidth, true, false, 1e300, 0.2, "of a GPU to another one"},
    {"node.shared_bytes_per_second", &M::node_shared_bandwidth, false, false, 1e300, 0.3, "of all GPUs of a node"},
    {"network.latency", &M::network_latency, false, false, 10, 0.7, "seconds of a message from node to node"},
    {"network.bytes_per_second", &M::network_bandwidth, true, false, 1e300, 0.4, "of a network card"},
    {"network.cards", &M::network_cards, false, true, 1e6, 0, "of a node; left out: one for each GPU"},
    {"job.startup_seconds", &M::startup_seconds, false, false, 1e300, 0, "until the first step"},
    {"job.checkpoint_bytes_per_second", &M::checkpoint_bytes_per_second, false, false, 1e300, 0,
     "at which the state is copied while training waits"},
    {"job.gpu_watts", &M::gpu_watts, false, false, 1e300, 0, "of a GPU while training"},
    {"job.node_watts", &M::node_watts, false, false, 1e300, 0, "of the rest of a node"},
};
constexpr std::string_view kName = "name", kDistribution = "jitter_distribution", kInNetwork = "network.in_network";
constexpr std::string_view kTables[] = {"node", "network", "job"};

class FigureReader {
 public:
  explicit FigureReader(const std::string& path) : path_(path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
      fail_at(0, "is a folder (name a TOML file of a machine's figures)");
    if (const std::size_t line = line_of_deep_key(file_text(path).value_or("")); line > 0) {
      fail_at(line, fmt::format("a key of more than {} parts", kMostKeyParts));
    }
    try {
      table_ = toml::parse_file(path);
    } catch (const toml::parse_error& error) {
      fail_at(error.source().begin.line, std::string(error.description()));
    }
    known_ = {kName, kDistribution, kInNetwork};
    for (const Figure& figure : kFigures) known_.push_back(figure.key);
    check_names(table_, "");
  }

  M figures() {
    M figures;
    figures.name = path_;
    if (const toml::node* node = find(kName)) figures.name = value<std::string>(kName, *node, "a string");
    for (const Figure& figure : kFigures) figures.*figure.value = number(figure);
    if (figures.element_bytes != 2 && figures.element_bytes != 4) {
      fail_key("element_bytes", fmt::format("{} is neither 2 nor 4", figures.element_bytes));
    }
    if (const toml::node* node = find(kDistribution)) {
      const auto text = value<std::string>(kDistribution, *node, "a string");
      const auto found = from_string<JitterDistribution>(text);
      if (!found) fail_key(kDistribution, fmt::format("\"{}\" is none (normal, exponential)", text));
      figures.jitter_distribution = *found;
    }
    if (const toml::node* node = find(kInNetwork)) {
      figures.network_reduces = value<bool>(kInNetwork, *node, "true or false");
    }
    return figures;
  }

 private:
  [[noreturn]] void fail_at(toml::source_index line, const std::string& problem) const {
    if (line == 0) fail_usage("--machine: {}: {}", path_, problem);
    fail_usage("--machine: {}:{}: {}", path_, line, problem);
  }
  [[noreturn]] void fail_key(std::string_view key, const std::string& problem) const {
    const toml::node* node = find(key);
    fail_at(node != nullptr ? node->source().begin.line : 0, fmt::format("{}: {}", key, problem));
  }

  [[nodiscard]] const toml::node* find(std::string_view key) const { return table_.at_path(key).node(); }

  template <class T>
  T value(std::string_view key, const toml::node& node, std::string_view wanted) const {
    const std::optional<T> found = node.value<T>();
    if (!found) fail_key(key, fmt::format("must be {}", wanted));
    return *found;
  }

  double number(const Figure& figure) const {
    const toml::node* node = find(figure.key);
    if (node == nullptr && figure.required) fail_key(figure.key, "missing (must be a number)");
    if (node == nullptr) return 0;
    const double x = value<double>(figure.key, *node, "a number");
    if (!std::isfinite(x) || x < 0 || (figure.required && x == 0)) {
      fail_key(figure.key, fmt::format("{} is not a finite number {} 0", x, figure.required ? "above" : "of at least"));
    }
    if (x > figure.maximum) fail_key(figure.key, fmt::format("{} is above {}", x, figure.maximum));
    if (figure.whole && x != std::floor(x)) fail_key(figure.key, fmt::format("{} is not a whole number", x));
    return x;
  }

  void check_names(const toml::table& table, const std::string& prefix) const {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      const bool section =
          prefix.empty() && std::find(std::begin(kTables), std::end(kTables), name) != std::end(kTables);
      if (section && node.is_table()) {
        check_names(*node.as_table(), name + ".");
        continue;
      }
      if (key.str().find('.') != std::string_view::npos) {
        fail_at(key.source().begin.line, fmt::format("\"{0}\": unknown key (write {0} without quotes)", name));
      }
      if (!section && std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      if (section) fail_at(node.source().begin.line, fmt::format("{}: must be a table", name));
      const std::string near = did_you_mean(name, known_);
      fail_at(key.source().begin.line,
              fmt::format("{}: unknown key{}", name, near.empty() ? "" : fmt::format(", did you mean {}?", near)));
    }
  }

  std::string path_;
  toml::table table_;
  std::vector<std::string_view> known_;
};

}  // namespace

std::span<const Figure> machine_figures() { return kFigures; }

MachineFigures read_figures(const std::string& path) { return FigureReader(path).figures(); }

std::string figures_toml(const MachineFigures& figures, const std::string& comment) {
  std::string text = "# ";
  for (const char c : without_controls(comment)) text += c == '\n' ? "\n# " : std::string(1, c);
  text += fmt::format("\n\n{} = {}\n", kName, toml_text(figures.name));
  std::string table;
  const auto enter = [&](std::string_view key) {
    const std::size_t dot = key.find('.');
    const std::string_view wanted = dot == std::string_view::npos ? "" : key.substr(0, dot);
    if (wanted != table) text += fmt::format("\n[{}]\n", wanted);
    table = wanted;
    return key.substr(dot == std::string_view::npos ? 0 : dot + 1);
  };
  for (const Figure& figure : kFigures) {
    const double value = figures.*figure.value;
    if (value == 0) continue;  // left out
    const std::string_view name = enter(figure.key);
    text += fmt::format("{:<44}  # {}\n", fmt::format("{} = {}", name, value), figure.help);
    if (figure.value == &M::jitter)
      text += fmt::format("{} = \"{}\"\n", kDistribution, to_string(figures.jitter_distribution));
    if (figure.value == &M::network_bandwidth) text += fmt::format("in_network = {}\n", figures.network_reduces);
  }
  return text;
}

}  // namespace convoy
