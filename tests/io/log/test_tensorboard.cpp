// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C against known values, and event files read back by a decoder written here from the protocol buffers' wire
// format.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/crc32c.h"
#include "io/log/tensorboard.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

template <class T>
T take(std::string_view& bytes) {
  T value{};
  REQUIRE(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes);
    value |= static_cast<std::uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8U;
  return rotated >> 17 | rotated << 15;
}

struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string version;
  std::string tag;
  float value = 0;
  std::optional<std::uint64_t> session_status;
};

void decode(std::string_view bytes, const std::string& where, Event& event) {
  while (!bytes.empty()) {
    const auto key = take_varint(bytes);
    const std::string field = where + "." + std::to_string(key >> 3);
    if ((key & 7) == 0) {
      const auto value = take_varint(bytes);
      if (field == ".2") event.step = value;
      if (field == ".7.1") event.session_status = value;
    } else if ((key & 7) == 1) {
      const auto value = take<double>(bytes);
      if (field == ".1") event.wall_time = value;
    } else if ((key & 7) == 5) {
      const auto value = take<float>(bytes);
      if (field == ".5.1.2") event.value = value;
    } else {
      REQUIRE((key & 7) == 2);
      const auto length = take_varint(bytes);
      const auto content = bytes.substr(0, length);
      bytes.remove_prefix(length);
      if (field == ".3") event.version = content;
      if (field == ".5.1.1") event.tag = content;
      if (field == ".5" || field == ".5.1" || field == ".7") decode(content, field, event);
    }
  }
}

std::vector<Event> events_of(const std::string& path) {
  const std::string text = read_text(path);
  std::string_view bytes = text;
  std::vector<Event> events;
  while (!bytes.empty()) {
    const auto header = bytes.substr(0, 8);
    const auto length = take<std::uint64_t>(bytes);
    CHECK(unmasked(take<std::uint32_t>(bytes)) == crc32c(header));
    const auto data = bytes.substr(0, length);
    bytes.remove_prefix(length);
    CHECK(unmasked(take<std::uint32_t>(bytes)) == crc32c(data));
    decode(data, "", events.emplace_back());
  }
  return events;
}

}  // namespace

TEST_CASE("CRC-32C of known texts") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  CHECK(crc32c("6789", crc32c("12345")) == 0xE3069283U);
  CHECK(crc32c_by_tables("6789", crc32c_by_tables("12345")) == 0xE3069283U);
  std::string bytes;
  for (int i = 0; i < 67; ++i) {  // every remainder of eight, also with the top bit set
    CHECK(crc32c(bytes, 0xDEADBEEFU) == crc32c_by_tables(bytes, 0xDEADBEEFU));
    bytes += static_cast<char>(i * 37);
  }
}

TEST_CASE("events come back") {
  const TemporaryFolder folder;
  TensorboardWriter writer(folder.path());
  CHECK(std::filesystem::path(writer.path()).filename().string().starts_with("events.out.tfevents."));
  writer.scalar("train/loss", 1, 2.5);
  writer.scalar("train/loss", 300, -0.1);
  writer.scalar("eval/top1", 5'000'000'000, 1e-30);
  const auto events = events_of(writer.path());
  REQUIRE(events.size() == 4);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].wall_time > 1.6e9);
  CHECK(events[1].tag == "train/loss");
  CHECK(events[1].step == 1);
  CHECK(events[1].value == 2.5F);
  CHECK(events[2].step == 300);
  CHECK(events[2].value == -0.1F);
  CHECK(events[3].tag == "eval/top1");
  CHECK(events[3].step == 5'000'000'000);
  CHECK(!events[1].session_status);
}

TEST_CASE("a resumed run says where it resumes") {
  const TemporaryFolder folder;
  const TensorboardWriter writer(folder.path(), 40);
  const auto events = events_of(writer.path());
  REQUIRE(events.size() == 2);
  CHECK(events[1].session_status == 1);
  CHECK(events[1].step == 41);
  CHECK_THROWS_AS(TensorboardWriter(folder / "none"), Error);
}
