// SPDX-License-Identifier: Apache-2.0
//
// In what a config differs from that of a checkpoint.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "app/build/read_config.h"
#include "app/config/config_changes.h"
#include "app/config/config_printer.h"

using namespace convoy;

namespace {

constexpr const char* kNet =
    "[model]\nname = \"sequential\"\nclasses = 5\n"
    "[[model.layers]]\ntype = \"linear\"\nout_features = 8\n[[model.layers]]\ntype = \"linear\"\nout_features = 5\n"
    "[data]\nkind = \"synthetic\"\nfeatures = 10\n[train]\nsteps = 10\nglobal_batch_size = 4\n";

Config net(const std::vector<std::string>& overrides = {}) { return parse_config(kNet, "net.toml", overrides); }

std::vector<std::string> changes(const std::string& before, const Config& after) {
  std::vector<std::string> texts;
  for (const ConfigChange& change : config_changes(before, after)) texts.push_back(change.str());
  return texts;
}

}  // namespace

TEST_CASE("each key that differs is named with both values") {
  const std::string before = resolved_toml(net(), false);
  CHECK(changes(before, net()).empty());
  CHECK(changes(before, net({"optimizer.lr=0.2", "optimizer.momentum=0.5"})) ==
        std::vector<std::string>{"optimizer.lr 0.1 -> 0.2", "optimizer.momentum 0.9 -> 0.5"});
  CHECK(changes(before, net({"train.epochs=3"})) ==
        std::vector<std::string>{"train.epochs not set -> 3", "train.steps 10 -> not set"});
}

TEST_CASE("layers are told apart") {
  std::string other = kNet;
  other.replace(other.find("out_features = 8"), 16, "out_features = 9");
  CHECK(changes(resolved_toml(net(), false), parse_config(other, "net.toml")) ==
        std::vector<std::string>{"model.layers[0].out_features 8 -> 9"});
}

TEST_CASE("what changes no result does not count") {
  const Config moved = net({"run.name=other", "run.dir=/x", "run.max_time=01:00:00", "log.progress=off",
                            "checkpoint.dir=/y", "checkpoint.resume=never"});
  CHECK(changes(resolved_toml(net(), false), moved).empty());
}

TEST_CASE("keys that an earlier version had not have their defaults, and keys of another version are shown") {
  std::string before = resolved_toml(net(), false);
  const std::size_t at = before.find("nesterov = ");
  before.erase(at, before.find('\n', at) + 1 - at);
  CHECK(changes(before, net()).empty());
  CHECK(changes(before, net({"optimizer.nesterov=true"})) ==
        std::vector<std::string>{"optimizer.nesterov false -> true"});
  const std::string unknown = resolved_toml(net(), false) + "\n[gone]\nkey = 1\n";
  CHECK(changes(unknown, net()) == std::vector<std::string>{"gone.key 1 -> not set"});
}
