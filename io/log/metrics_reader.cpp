// SPDX-License-Identifier: Apache-2.0
#include "io/log/metrics_reader.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>

namespace convoy {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestExact = 9007199254740992.0;  // 2^53

}  // namespace

// Reads the values directly in the object, and the numbers of lists there. Ignores deeper values.
class FieldReader final : public nlohmann::json::json_sax_t {
 public:
  explicit FieldReader(MetricsLine& fields) : fields_(fields) {}

  bool null() override { return value(kNone); }
  bool boolean(bool flag) override { return value(flag ? 1 : 0); }
  bool number_integer(number_integer_t number) override { return value(static_cast<double>(number)); }
  bool number_unsigned(number_unsigned_t number) override { return value(static_cast<double>(number)); }
  bool number_float(number_float_t number, const string_t& /*written*/) override { return value(number); }
  bool string(string_t& text) override {
    if (depth_ == 1 && field_ != nullptr) field_->text = text;
    return depth_ > 0;
  }
  bool binary(binary_t& /*bytes*/) override { return false; }
  bool start_object(std::size_t /*size*/) override {
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) field_ = &fields_.add(name);
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t /*size*/) override {
    ++depth_;
    return depth_ > 1;  // a line must be an object, not a list
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const nlohmann::json::exception& /*e*/) override {
    return false;
  }

 private:
  bool value(double number) {
    if (depth_ == 1 && field_ != nullptr) field_->number = number;
    if (depth_ == 2 && field_ != nullptr) field_->list.push_back(number);
    return depth_ > 0;
  }

  MetricsLine& fields_;
  MetricsLine::Field* field_ = nullptr;
  int depth_ = 0;
};

bool MetricsLine::parse(std::string_view line) {
  used_ = 0;
  FieldReader reader(*this);
  return nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
}

MetricsLine::Field& MetricsLine::add(std::string_view key) {
  if (used_ == fields_.size()) fields_.emplace_back();
  Field& field = fields_[used_++];
  field.key = key;
  field.text.clear();
  field.number = kNone;
  field.list.clear();
  return field;
}

const MetricsLine::Field* MetricsLine::find(std::string_view key) const {
  for (std::size_t i = 0; i < used_; ++i) {
    if (fields_[i].key == key) return &fields_[i];
  }
  return nullptr;
}

double MetricsLine::number(std::string_view key) const {
  const Field* field = find(key);
  return field == nullptr ? kNone : field->number;
}

std::optional<std::int64_t> MetricsLine::integer(std::string_view key) const {
  const double value = number(key);
  if (!(value >= 0 && value <= kLargestExact) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string_view MetricsLine::text(std::string_view key) const {
  const Field* field = find(key);
  return field == nullptr ? std::string_view() : std::string_view(field->text);
}

const std::vector<double>& MetricsLine::list(std::string_view key) const {
  static const std::vector<double> empty;
  const Field* field = find(key);
  return field == nullptr ? empty : field->list;
}

}  // namespace convoy
