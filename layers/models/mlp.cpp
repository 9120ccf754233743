// SPDX-License-Identifier: Apache-2.0
//
// The two networks of linear layers.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/linear.h"
#include "layers/models/models.h"
#include "layers/pooling.h"
#include "layers/sequence.h"

namespace convoy {

std::vector<Unit> toy_model(std::int64_t outputs) {
  std::vector<Unit> units;
  units.push_back({"net1", "net1", std::make_unique<Linear>(10, true, true)});
  units.push_back({"net2", "net2", std::make_unique<Linear>(outputs, true, false)});
  return units;
}

std::vector<Unit> mlp_model(const std::vector<std::int64_t>& hidden, std::int64_t outputs) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i <= hidden.size(); ++i) {
    const bool last = i == hidden.size();
    const std::string name = fmt::format("fc{}", i + 1);
    auto sequence = std::make_unique<Sequence>();
    if (i == 0) sequence->add("flatten", std::make_unique<Flatten>());
    sequence->add(name, std::make_unique<Linear>(last ? outputs : hidden[i], true, !last));
    units.push_back({name, "", std::move(sequence)});
  }
  return units;
}

}  // namespace convoy
