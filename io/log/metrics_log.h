// SPDX-License-Identifier: Apache-2.0
//
// metrics.jsonl (docs/interface.md): one JSON object a line, in the file as soon as write() returns. Floating-point
// numbers have 9 significant digits, so a float32 survives; one that is not finite is written as null, since JSON has
// no other word for it. Relies on POSIX files opened for appending. Invariant: the file is whole lines, also after a
// kill: the half-written last line of an interrupted run is cut off at opening.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace convoy {

/// A key and its value: an integer, a float, a boolean, a string, or a list of floats or strings.
struct MetricsField {
  template <class T>
  requires std::integral<T> &&(!std::same_as<T, bool>)MetricsField(std::string_view key_, T value_)
      : key(key_), value(static_cast<std::int64_t>(value_)) {}
  template <std::floating_point T>
  MetricsField(std::string_view key_, T value_) : key(key_), value(static_cast<double>(value_)) {}
  MetricsField(std::string_view key_, bool value_) : key(key_), value(value_) {}
  MetricsField(std::string_view key_, std::vector<double> value_) : key(key_), value(std::move(value_)) {}
  MetricsField(std::string_view key_, std::vector<std::string> value_) : key(key_), value(std::move(value_)) {}
  MetricsField(std::string_view key_, std::string_view value_) : key(key_), value(std::string(value_)) {}
  MetricsField(std::string_view key_, const std::string& value_) : key(key_), value(value_) {}
  MetricsField(std::string_view key_, const char* value_) : key(key_), value(std::string(value_)) {}

  std::string key;
  std::variant<std::int64_t, double, bool, std::string, std::vector<double>, std::vector<std::string>> value;
};

/// `{"event":"step","step":1,...}` without the line's end, keys in the given order.
[[nodiscard]] std::string metrics_line(const std::vector<MetricsField>& fields);

class MetricsLog {
 public:
  /// Opens the file for appending; creates it when it is missing.
  explicit MetricsLog(std::string path);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void write(const std::vector<MetricsField>& fields);
  /// Makes the lines written so far durable. May be called by another thread than write().
  void sync();
  /// For a run that resumes at `step` (-1: from nothing): drops the lines of the events step, health, eval,
  /// checkpoint and copy beyond it, which the interrupted run wrote and this one will write again, and lines that are
  /// no JSON. Returns how many.
  std::int64_t truncate_after(std::int64_t step);

 private:
  void open();
  void cut_half_line();

  std::string path_;
  int descriptor_ = -1;
  bool is_named_ = false;  // the file's name is durable
};

}  // namespace convoy
