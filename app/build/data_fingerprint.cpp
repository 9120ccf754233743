// SPDX-License-Identifier: Apache-2.0
#include "app/build/data_fingerprint.h"

#include <algorithm>
#include <cstdint>

#include "io/files/crc32c.h"
#include "layers/base/counted.h"

namespace convoy {

namespace {

constexpr std::int64_t kMaxRead = std::int64_t{1} << 24;

}  // namespace

std::string data_fingerprint(const Config& config, const Dataset& data) {
  const std::string samples = counted(data.size(), "sample");
  if (data.target_size() > 0) return fmt::format("{}, {}", samples, counted(data.target_size(), "target"));
  if (config.data.kind == "synthetic") return fmt::format("{}, {}", samples, counted(data.classes(), "class"));
  std::string bytes;
  for (const std::string& name : data.class_names()) bytes += name + '\0';
  const std::int64_t stride = std::max<std::int64_t>(1, data.size() / kMaxRead);
  for (std::int64_t i = 0; i < data.size(); i += stride) {
    std::int64_t label = 0;
    data.read(i, nullptr, &label, nullptr);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(label >> shift & 0xff);
  }
  return fmt::format("{}, {}, labels {:08x}", samples, counted(data.classes(), "class"), crc32c(bytes));
}

}  // namespace convoy
