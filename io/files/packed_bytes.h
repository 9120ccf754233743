// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts as one block of bytes, to travel between processes of one program and one kind of machine, and
// back. Invariant: what comes from BytePacker in one order is taken from ByteUnpacker in the same; a block that is too
// short is an Error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "layers/base/shape.h"

namespace convoy {

class BytePacker {
 public:
  void number(std::int64_t value) { raw(&value, sizeof value); }
  void text(std::string_view text) {
    number(static_cast<std::int64_t>(text.size()));
    raw(text.data(), text.size());
  }
  void texts(const std::vector<std::string>& texts) {
    number(static_cast<std::int64_t>(texts.size()));
    for (const std::string& one : texts) text(one);
  }
  void shape(const Shape& shape) {
    std::vector<std::int64_t> extents;
    for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
    counts(extents);
  }
  template <class T>
  void array(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    number(static_cast<std::int64_t>(values.size()));
    raw(values.data(), values.size() * sizeof(T));
  }
  /// Numbers of at least 0, each in as few bytes (1, 2, 4 or 8) as the largest needs.
  void counts(const std::vector<std::int64_t>& values) {
    const std::int64_t most = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
    if (most <= std::numeric_limits<std::uint8_t>::max()) return as<std::uint8_t>(values);
    if (most <= std::numeric_limits<std::uint16_t>::max()) return as<std::uint16_t>(values);
    if (most <= std::numeric_limits<std::uint32_t>::max()) return as<std::uint32_t>(values);
    as<std::uint64_t>(values);
  }
  [[nodiscard]] std::string take() { return std::exchange(bytes_, {}); }

 private:
  void raw(const void* data, std::size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }
  template <class T>
  void as(const std::vector<std::int64_t>& values) {
    number(sizeof(T));
    number(static_cast<std::int64_t>(values.size()));
    bytes_.reserve(bytes_.size() + values.size() * sizeof(T));
    for (const std::int64_t value : values) {
      const auto narrow = static_cast<T>(value);
      raw(&narrow, sizeof narrow);
    }
  }
  std::string bytes_;
};

class ByteUnpacker {
 public:
  /// `bytes` outlive it.
  explicit ByteUnpacker(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, raw(sizeof value), sizeof value);
    return value;
  }
  [[nodiscard]] std::string text() {
    const auto size = static_cast<std::size_t>(number());
    return {raw(size), size};
  }
  [[nodiscard]] std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (std::int64_t left = number(); left > 0; --left) texts.push_back(text());
    return texts;
  }
  [[nodiscard]] Shape shape() {
    const std::vector<std::int64_t> extents = counts();
    if (extents.size() > Shape::kMaxRank) fail("a block of packed bytes has a shape of {} axes", extents.size());
    return {extents.data(), static_cast<int>(extents.size())};
  }
  template <class T>
  [[nodiscard]] std::vector<T> array() {
    const auto count = static_cast<std::size_t>(number());
    const char* data = raw(count, sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), data, count * sizeof(T));
    return values;
  }
  [[nodiscard]] std::vector<std::int64_t> counts() {
    switch (number()) {
      case 1: return widened<std::uint8_t>();
      case 2: return widened<std::uint16_t>();
      case 4: return widened<std::uint32_t>();
      default: return widened<std::uint64_t>();
    }
  }

 private:
  const char* raw(std::size_t count, std::size_t bytes_each = 1) {
    if (count > bytes_.size() / bytes_each) fail("a block of packed bytes ends early");
    const char* data = bytes_.data();
    bytes_.remove_prefix(count * bytes_each);
    return data;
  }
  template <class T>
  std::vector<std::int64_t> widened() {
    const auto count = static_cast<std::size_t>(number());
    const char* data = raw(count, sizeof(T));
    std::vector<std::int64_t> values(count);
    for (std::int64_t& value : values) {
      T narrow{};
      std::memcpy(&narrow, data, sizeof narrow);
      data += sizeof narrow;
      value = static_cast<std::int64_t>(narrow);
    }
    return values;
  }
  std::string_view bytes_;
};

}  // namespace convoy
