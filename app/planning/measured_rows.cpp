// SPDX-License-Identifier: Apache-2.0
#include "app/planning/measured_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <string_view>
#include <system_error>

#include "app/base/trimmed.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::array<std::string_view, 3> kColumns{"ranks", "samples_per_rank", "images_per_second"};
constexpr std::size_t kMaxRows = 100;  // each is left out once, in a fit of its own
constexpr double kMaxRanks = 1 << 20, kMaxSamples = 1e9, kMaxRate = 1e15;

std::vector<std::string_view> cells(std::string_view line) {
  std::vector<std::string_view> result;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    result.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return result;
}

class RowReader {
 public:
  explicit RowReader(const std::string& path) : path_(path) {}

  std::vector<MeasuredRow> read() {
    std::ifstream file(path_);
    if (!file) fail_usage("--fit: {} cannot be opened (name a CSV file of measured rows)", path_);
    std::vector<MeasuredRow> rows;
    for (std::string text; std::getline(file, text);) {
      ++line_;
      std::string_view content = text;
      if (line_ == 1 && content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);  // byte order mark
      content = trimmed(content);
      if (content.empty() || content.front() == '#') continue;
      if (width_ == 0) {
        read_header(content);
      } else {
        rows.push_back(row(content));
        if (rows.size() > kMaxRows) fail_line(fmt::format("there are more than {} rows", kMaxRows));
      }
    }
    if (file.bad()) fail_usage("--fit: {} cannot be read (is it a file?)", path_);
    if (width_ == 0) fail_usage("--fit: {} is empty (its first line must be {})", path_, fmt::join(kColumns, ","));
    if (rows.size() < 2) {
      fail_usage(
          "--fit: {} has {}, from which nothing can be told apart (measure at least two numbers of ranks or of "
          "samples per rank)",
          path_, rows.empty() ? "no row" : "one row");
    }
    return rows;
  }

 private:
  [[noreturn]] void fail_line(const std::string& problem) const {
    fail_usage("--fit: {}:{}: {}", path_, line_, problem);
  }

  void read_header(std::string_view content) {
    const std::vector<std::string_view> names = cells(content);
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const auto found = std::find(names.begin(), names.end(), kColumns[i]);
      if (found == names.end()) {
        fail_line(fmt::format("no column {} (the header must be {})", kColumns[i], fmt::join(kColumns, ",")));
      }
      columns_[i] = static_cast<std::size_t>(found - names.begin());
    }
    width_ = names.size();
  }

  MeasuredRow row(std::string_view content) const {
    const std::vector<std::string_view> values = cells(content);
    if (values.size() != width_) fail_line(fmt::format("{} columns, the header has {}", values.size(), width_));
    return {static_cast<int>(number(values, 0, kMaxRanks, true)),
            static_cast<std::int64_t>(number(values, 1, kMaxSamples, true)), number(values, 2, kMaxRate, false), line_};
  }

  double number(const std::vector<std::string_view>& values, std::size_t column, double maximum, bool whole) const {
    const std::string_view text = values[columns_[column]];
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
    if (!is_number || value <= 0 || value > maximum || (whole && value != std::floor(value))) {
      fail_line(fmt::format("{}: \"{}\" is not a {} above 0, at most {:g}", kColumns[column], text,
                            whole ? "whole number" : "number", maximum));
    }
    return value;
  }

  std::string path_;
  int line_ = 0;
  std::array<std::size_t, kColumns.size()> columns_{};
  std::size_t width_ = 0;  // of the header; 0: not read yet
};

}  // namespace

std::vector<MeasuredRow> read_measured_rows(const std::string& path) { return RowReader(path).read(); }

}  // namespace convoy
