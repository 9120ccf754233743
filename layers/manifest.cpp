// SPDX-License-Identifier: Apache-2.0
#include "layers/manifest.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "layers/base/error.h"

namespace convoy {

std::vector<const HostTensor*> match_manifest(const std::vector<TensorEntry>& wanted,
                                              const std::vector<HostTensor>& there, const std::string& source,
                                              const std::string& skip) {
  std::map<std::string, const HostTensor*> left;
  for (const HostTensor& tensor : there) left[tensor.name] = &tensor;
  if (!skip.empty()) std::erase_if(left, [&](const auto& item) { return item.first.starts_with(skip); });
  std::vector<const HostTensor*> found;
  std::string missing, misshaped, unknown;
  for (const TensorEntry& entry : wanted) {
    found.push_back(nullptr);
    if (!skip.empty() && !entry.buffer && entry.name.starts_with(skip)) continue;
    const auto item = left.find(entry.name);
    if (item == left.end()) {
      missing += " " + entry.name;
      continue;
    }
    const HostTensor* tensor = item->second;
    left.erase(item);
    found.back() = tensor;
    if (tensor->shape == entry.shape && tensor->dtype == entry.dtype) continue;
    misshaped += fmt::format(" {} ({} {} in the file, {} {} in the model)", entry.name, dtype_name(tensor->dtype),
                             tensor->shape.str(), dtype_name(entry.dtype), entry.shape.str());
  }
  for (const auto& [name, tensor] : left) unknown += " " + name;
  if (missing.empty() && misshaped.empty() && unknown.empty()) return found;
  std::string text;
  if (!missing.empty()) text += "; missing:" + missing;
  if (!misshaped.empty()) text += "; of another shape:" + misshaped;
  if (!unknown.empty()) text += "; unknown:" + unknown;
  fail_usage("{}: does not belong to this model{} (check model.name, model.classes and model.stem)", source, text);
}

std::vector<TensorEntry> averaged(const std::vector<TensorEntry>& entries) {
  std::vector<TensorEntry> result;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(result),
               [](const TensorEntry& entry) { return entry.dtype == DType::kF32; });  // counts are int64
  return result;
}

std::vector<TensorEntry> only_parameters(const std::vector<TensorEntry>& entries) {
  std::vector<TensorEntry> result;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(result),
               [](const TensorEntry& entry) { return !entry.buffer; });
  return result;
}

}  // namespace convoy
