// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "io/files/atomic_file.h"
#include "io/files/own_file.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using Json = nlohmann::json;

constexpr int kVersion = 2;  // 1: without checksums

std::string head_line(std::uint64_t fingerprint) {
  return Json{{"format", "convoy-pack"}, {"version", kVersion}, {"fingerprint", fmt::format("{:016x}", fingerprint)}}
             .dump() +
         "\n";
}

std::string placing_line() { return Json{{"placing", true}}.dump() + "\n"; }

std::string block_line(const PackBlock& block) {
  // A file's name is any bytes.
  Json line{{"sizes", block.sizes}, {"crc32c", block.checksums}, {"broken", block.broken}};
  const PixelStatistics& s = block.statistics;
  if (s.pixels > 0) line["statistics"] = Json::array({s.pixels, s.mean, s.squares});  // read back as they are
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::int64_t PackBlock::bytes() const {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) sum += size > 0 ? size : 0;
  return sum;
}

PackJournal::PackJournal(std::string path, std::uint64_t fingerprint)
    : path_(std::move(path)),
      fingerprint_(fingerprint),
      descriptor_(open_own_file(path_, O_RDWR | O_CREAT | O_APPEND, 0644)) {
  if (descriptor_ < 0) {
    fail_system(errno, "cannot create {}: {} (name an output in a folder that may be written)", path_,
                std::strerror(errno));
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    fail_busy("{} is in use: another process packs into the same file (wait for it, or end it)", path_);
  }
  read();
}

PackJournal::~PackJournal() { ::close(descriptor_); }

void PackJournal::read() {
  const std::string text = file_text(path_).value_or("");
  const std::string head = head_line(fingerprint_);
  differs_ = !text.empty() && !text.starts_with(head);
  if (!text.starts_with(head)) return restart();
  std::size_t good = head.size();
  for (std::size_t end = 0; (end = text.find('\n', good)) != std::string::npos; good = end + 1) {
    if (text.compare(good, end + 1 - good, placing_line()) == 0) {
      placing_ = true;
      continue;
    }
    const Json line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(good),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    try {
      blocks_.push_back({line.at("sizes").get<std::vector<std::int64_t>>(),
                         line.at("crc32c").get<std::vector<std::uint32_t>>(),
                         line.at("broken").get<std::vector<std::string>>()});
      if (line.contains("statistics")) {
        const Json& found = line.at("statistics");
        PixelStatistics& s = blocks_.back().statistics;
        s = {found.at(0).get<std::int64_t>(), found.at(1).get<std::vector<double>>(),
             found.at(2).get<std::vector<double>>()};
      }
      if (blocks_.back().checksums.size() != blocks_.back().sizes.size()) {
        blocks_.pop_back();
        break;
      }
    } catch (const Json::exception&) {
      break;
    }
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(good)) != 0) restart();  // behind it: a line cut by a kill
}

void PackJournal::restart() {
  blocks_.clear();
  placing_ = false;
  if (::ftruncate(descriptor_, 0) != 0) fail_io("cannot write {}: {}", path_, std::strerror(errno));
  put(head_line(fingerprint_));
}

void PackJournal::append(const std::vector<PackBlock>& blocks) {
  std::string text;
  for (const PackBlock& block : blocks) text += block_line(block);
  put(text);
}

void PackJournal::note_placing() {
  put(placing_line());
  if (::fdatasync(descriptor_) != 0) fail_io("cannot write {}: {}", path_, std::strerror(errno));
  sync_folder_of(path_);  // shards that have got their names are of no use without the journal
  placing_ = true;
}

bool PackJournal::says_placing(const std::string& path) {
  return file_text(path).value_or("").ends_with(placing_line());
}

void PackJournal::put(const std::string& text) { write_all(descriptor_, std::as_bytes(std::span(text)), path_); }

void PackJournal::remove() { ::unlink(path_.c_str()); }

}  // namespace convoy
