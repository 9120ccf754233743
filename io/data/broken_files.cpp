// SPDX-License-Identifier: Apache-2.0
#include "io/data/broken_files.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/message_text.h"

namespace convoy {

namespace {

constexpr std::size_t kListed = 20;

}  // namespace

BrokenFiles::BrokenFiles(std::string source, std::int64_t samples, double share, std::string remark)
    : source_(std::move(source)),
      remark_(std::move(remark)),
      limit_(static_cast<std::int64_t>(std::floor(share * static_cast<double>(samples)))) {}

void BrokenFiles::note(std::int64_t index, const std::string& name, const std::string& problem) {
  std::string text = name_text(fmt::format("{}: {}", name, problem));  // a name may hold a line's end
  const std::lock_guard guard(mutex_);
  if (found_.emplace(index, std::move(text)).second) news_.push_back(index);
  check();
}

void BrokenFiles::remark_once(const std::string& name, const std::string& text) {
  const std::lock_guard guard(mutex_);
  if (!told_.empty()) return;
  told_ = name_text(fmt::format("{}: {}", name, text));
  news_.push_back(kRemark);
}

std::vector<BrokenFiles::Found> BrokenFiles::take() {
  const std::lock_guard guard(mutex_);
  std::vector<Found> found;
  found.reserve(news_.size());
  for (const std::int64_t index : news_) found.push_back({index, index == kRemark ? told_ : found_.at(index)});
  news_.clear();
  return found;
}

bool BrokenFiles::has_news() const {
  const std::lock_guard guard(mutex_);
  return !news_.empty();
}

std::size_t BrokenFiles::noted() const {
  const std::lock_guard guard(mutex_);
  return found_.size();
}

void BrokenFiles::merge(const std::vector<Found>& found) {
  const std::lock_guard guard(mutex_);
  for (const Found& one : found) {
    if (one.index == kRemark) {
      told_ = one.text;
    } else {
      found_.emplace(one.index, one.text);
    }
    std::erase(news_, one.index);
  }
  check();
}

void BrokenFiles::check() const {
  if (static_cast<std::int64_t>(found_.size()) <= limit_) return;
  std::vector<std::string> listed;
  for (const auto& [index, text] : found_) {
    if (listed.size() == kListed) break;
    listed.push_back(text);
  }
  fail(
      "{}: {} broken files are more than the {} that data.max_broken allows (repair or remove them, or raise it): {}{}",
      source_, found_.size(), limit_, fmt::join(listed, "; "), found_.size() > kListed ? "; ..." : "");
}

}  // namespace convoy
