// SPDX-License-Identifier: Apache-2.0
#include "io/data/matched_classes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "io/data/dataset.h"

namespace convoy {

namespace {

constexpr std::size_t kNamedClasses = 20;

class RelabelledDataset final : public WrappedDataset {
 public:
  /// new_labels: of each label of `data`.
  RelabelledDataset(std::unique_ptr<Dataset> data, std::vector<std::int64_t> new_labels, std::vector<std::string> names)
      : WrappedDataset(std::move(data)), new_labels_(std::move(new_labels)), names_(std::move(names)) {}

  [[nodiscard]] std::int64_t classes() const override { return static_cast<std::int64_t>(names_.size()); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return names_; }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override {
    data().read(sample, input, label, target);
    if (label != nullptr) *label = new_labels_[static_cast<std::size_t>(*label)];
  }

 private:
  const std::vector<std::int64_t> new_labels_;
  const std::vector<std::string> names_;
};

std::string listed(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamedClasses);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(", ... ({} in all)", names.size());
  return text;
}

}  // namespace

std::vector<std::int64_t> class_indices(const std::vector<std::string>& own, const std::string& source,
                                        const std::vector<std::string>& names) {
  std::vector<std::int64_t> indices;
  std::vector<std::string> unknown;
  for (const std::string& name : own) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) unknown.push_back(name);
    indices.push_back(found - names.begin());
  }
  if (unknown.empty()) return indices;
  fail_usage("{} has classes that the training data has not: {} (its classes: {}; those of the training data: {})",
             source, listed(unknown), listed(own), listed(names));
}

MatchedClasses match_classes(std::unique_ptr<Dataset> data, const std::string& source,
                             const std::vector<std::string>& names) {
  const std::vector<std::string> own = data->class_names();
  if (own.empty() || names.empty() || own == names) return {std::move(data), ""};
  std::vector<std::int64_t> new_labels = class_indices(own, source, names);
  if (data->classes() > static_cast<std::int64_t>(own.size())) {
    fail_usage("{} has labels up to {}, but names only {} classes (repair its class_names)", source,
               data->classes() - 1, own.size());
  }
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (std::find(own.begin(), own.end(), name) == own.end()) missing.push_back(name);
  }
  std::string note;
  if (!missing.empty()) {
    note = fmt::format("note: {} has {} of the {} classes of the training data, without {}", source, own.size(),
                       names.size(), listed(missing));
  }
  return {std::make_unique<RelabelledDataset>(std::move(data), std::move(new_labels), names), note};
}

}  // namespace convoy
