// SPDX-License-Identifier: Apache-2.0
#include "app/train/confusion.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

// Takes a line off `text`.
std::vector<std::string> take_csv_line(std::string_view& text) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      fields.back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      fields.emplace_back();
    } else if (!quoted && c == '\n') {
      break;
    } else {
      fields.back() += c;
    }
  }
  text.remove_prefix(std::min(i + 1, text.size()));
  return fields;
}

}  // namespace

double Confusion::samples(std::size_t label) const {
  double sum = 0;
  for (std::size_t k = 0; k < classes.size(); ++k) sum += at(label, k);
  return sum;
}

double Confusion::accuracy(std::size_t label) const {
  const double all = samples(label);
  return all > 0 ? at(label, label) / all : std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::size_t> Confusion::by_accuracy() const {
  std::vector<std::pair<double, std::size_t>> found;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    if (samples(k) > 0) found.emplace_back(accuracy(k), k);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::size_t> order;
  order.reserve(found.size());
  for (const auto& [share, label] : found) order.push_back(label);
  return order;
}

std::size_t Confusion::most_taken_for(std::size_t label) const {
  std::size_t most = label;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    if (k != label && at(label, k) > (most == label ? 0.0 : at(label, most))) most = k;
  }
  return most;
}

std::int64_t predicted_class(std::span<const float> outputs) {
  std::size_t best = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (std::isnan(outputs[k])) return -1;
    if (outputs[k] > outputs[best]) best = k;
  }
  return static_cast<std::int64_t>(best);
}

std::vector<std::string> class_names_or_numbers(std::vector<std::string> names, std::int64_t count) {
  names.resize(std::min(names.size(), static_cast<std::size_t>(count)));
  for (std::size_t k = names.size(); k < static_cast<std::size_t>(count); ++k) names.push_back(std::to_string(k));
  return names;
}

std::string confusion_csv(const Confusion& confusion) {
  std::string text = "label";
  for (const std::string& name : confusion.classes) text += "," + csv_field(name);
  text += "\n";
  for (std::size_t label = 0; label < confusion.classes.size(); ++label) {
    text += csv_field(confusion.classes[label]);
    for (std::size_t k = 0; k < confusion.classes.size(); ++k) text += fmt::format(",{:.0f}", confusion.at(label, k));
    text += "\n";
  }
  return text;
}

Confusion parse_confusion(std::string_view csv) {
  Confusion confusion;
  confusion.classes = take_csv_line(csv);
  if (confusion.classes.front() != "label")
    fail("is no confusion matrix: its first line does not begin with \"label\"");
  confusion.classes.erase(confusion.classes.begin());
  const std::size_t classes = confusion.classes.size();
  for (std::size_t label = 0; label < classes; ++label) {
    const std::vector<std::string> fields = take_csv_line(csv);
    if (fields.size() != classes + 1) {
      fail("line {} has {} fields, the first one {}", label + 2, fields.size(), classes + 1);
    }
    for (std::size_t k = 1; k < fields.size(); ++k) {
      double count = 0;
      const char* const end = fields[k].data() + fields[k].size();
      const auto [stop, problem] = std::from_chars(fields[k].data(), end, count);
      if (problem != std::errc() || stop != end || !(count >= 0)) {
        fail("line {}: \"{}\" is not a count", label + 2, fields[k]);
      }
      confusion.counts.push_back(count);
    }
  }
  return confusion;
}

}  // namespace convoy
