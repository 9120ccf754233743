// SPDX-License-Identifier: Apache-2.0
#include "io/packer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "io/atomic_file.h"

namespace convoy {

namespace {

constexpr std::int64_t kBlock = 64;                        // samples
constexpr std::int64_t kUnnoted = std::int64_t{64} << 20;  // bytes that a power cut may cost
constexpr std::int64_t kBrokenShare = 100;                 // one in so many may be broken
constexpr std::size_t kListed = 20;
constexpr std::chrono::milliseconds kLook{100};  // at the clock and for signals
constexpr std::chrono::seconds kNoteAfter{1};

}  // namespace

Packer::Packer(const PackSource& source, const PackPlan& plan, PackTask task, PackHooks hooks)
    : source_(source),
      plan_(plan),
      task_(std::move(task)),
      hooks_(std::move(hooks)),
      part_(task_.output + ".part"),
      block_count_((source.size() + kBlock - 1) / kBlock),
      journal_(part_ + ".json", task_.fingerprint) {}

Packer::~Packer() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DataFileFrame Packer::frame() const {
  DataFileFrame frame;
  if (!source_.encoded()) frame.image = source_.image();
  if (task_.image.raw > 0) frame.image = {task_.image.raw, task_.image.raw, 3};
  frame.class_names = source_.class_names();
  frame.groups.emplace_back().path = plan_.split ? "/train" : "";
  if (plan_.split) frame.groups.emplace_back().path = "/validation";
  return frame;
}

void Packer::check_room() const {
  std::int64_t bytes = source_.bytes();
  if (task_.image.raw > 0) bytes = source_.size() * task_.image.raw * task_.image.raw * 3;
  if (task_.image.raw == 0 && task_.image.resize > 0) return;  // nobody knows
  std::error_code error;
  const auto folder = std::filesystem::absolute(part_).parent_path();
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || bytes <= end_ + static_cast<std::int64_t>(space.available)) return;
  fail_usage("{}: {} bytes are needed and {} are free there (make room or name another place)", task_.output,
             bytes - end_, space.available);
}

void Packer::open_part() {
  // Where the samples start: a frame of one sample has them at the same place.
  DataFileFrame probe = frame();
  for (DataFileGroup& group : probe.groups) {
    group.labels = {0};
    group.offsets = {0, 1};
  }
  try {
    start_ = write_frame(part_ + ".frame", probe);
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::kUsage);
  }
  ::unlink((part_ + ".frame").c_str());
  descriptor_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    fail_usage("cannot create {}: {} (name an output in a folder that may be written)", part_, std::strerror(errno));
  }
  blocks_ = journal_.blocks();
  bool whole = static_cast<std::int64_t>(blocks_.size()) <= block_count_;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) * kBlock;
    const auto count = static_cast<std::int64_t>(blocks_[i].sizes.size());
    whole = whole && count == std::min(kBlock, source_.size() - first);
    end_ += blocks_[i].bytes();
    broken_ += static_cast<std::int64_t>(blocks_[i].broken.size());
  }
  if (!whole || status.st_size < start_ + end_ || (blocks_.empty() && status.st_size > 0)) {
    if (status.st_size > 0)
      hooks_.message(fmt::format("{} holds nothing that can be gone on with: beginning anew", part_));
    journal_.restart();
    blocks_.clear();
    end_ = broken_ = 0;
    if (::ftruncate(descriptor_, 0) != 0) fail("cannot write {}: {}", part_, std::strerror(errno));
  }
  check_broken();
  next_ = static_cast<std::int64_t>(blocks_.size());
  if (next_ > 0) {
    hooks_.message(
        fmt::format("going on after {} of {} samples, which {} holds", samples_done(), source_.size(), part_));
  }
}

std::int64_t Packer::samples_done() const {
  return std::min(source_.size(), static_cast<std::int64_t>(blocks_.size()) * kBlock);
}

PackBlock Packer::make_block(std::int64_t number, ImagePacker& packer, std::vector<std::byte>& bytes) const {
  PackBlock block;
  bytes.clear();
  const std::int64_t first = number * kBlock, last = std::min(source_.size(), first + kBlock);
  for (std::int64_t at = first; at < last; ++at) {
    const std::int64_t index = plan_.order[static_cast<std::size_t>(at)];
    const std::size_t before = bytes.size();
    try {
      packer.append(index, bytes);
      block.sizes.push_back(static_cast<std::int64_t>(bytes.size() - before));
    } catch (const Error& error) {
      if (!source_.encoded()) throw;  // the file itself cannot be read
      bytes.resize(before);
      block.sizes.push_back(-1);
      block.broken.push_back(fmt::format("{}: {}", source_.name(index), error.what()));
    }
  }
  return block;
}

// Under the lock.
void Packer::flush() {
  if (unnoted_.empty()) return;
  if (::fdatasync(descriptor_) != 0) {
    fail("cannot write {}: {} (make room or name another place)", part_, std::strerror(errno));
  }
  journal_.append(unnoted_);
  unnoted_.clear();
  unnoted_bytes_ = 0;
}

// Under the lock.
void Packer::check_broken() const {
  if (broken_ * kBrokenShare <= source_.size()) return;
  std::vector<std::string> listed;
  for (const PackBlock& block : blocks_) {
    for (const std::string& text : block.broken) {
      if (listed.size() < kListed) listed.push_back(text);
    }
  }
  fail("{}: {} broken files among {} are more than one in {} (repair or remove them): {}{}", source_.path(), broken_,
       source_.size(), kBrokenShare, fmt::join(listed, "; "),
       static_cast<std::int64_t>(listed.size()) < broken_ ? "; ..." : "");
}

// Waits until all blocks before this one are written. The lock is held while writing: it goes in one stream anyway.
void Packer::commit(std::int64_t number, PackBlock block, const std::vector<std::byte>& bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || static_cast<std::int64_t>(blocks_.size()) == number; });
  if (failure_) return;
  if (const int reason = pwrite_all(descriptor_, bytes, start_ + end_); reason != 0) {
    fail("cannot write {}: {} (make room or name another place; the same command then goes on where it was)", part_,
         std::strerror(reason));
  }
  end_ += static_cast<std::int64_t>(bytes.size());
  broken_ += static_cast<std::int64_t>(block.broken.size());
  news_.insert(news_.end(), block.broken.begin(), block.broken.end());
  unnoted_.push_back(block);
  unnoted_bytes_ += static_cast<std::int64_t>(bytes.size());
  blocks_.push_back(std::move(block));
  check_broken();
  if (unnoted_bytes_ >= kUnnoted) flush();
  changed_.notify_all();
}

void Packer::work() {
  try {
    ImagePacker packer(source_, task_.image);
    std::vector<std::byte> bytes;
    while (true) {
      std::int64_t number = 0;
      {
        const std::lock_guard lock(mutex_);
        if (failure_ || stopping_ || next_ == block_count_) break;
        number = next_++;
      }
      PackBlock block = make_block(number, packer, bytes);
      commit(number, std::move(block), bytes);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  --working_;
  changed_.notify_all();
}

// Until all threads have ended: tells the caller how it goes, and notes what is done.
void Packer::watch() {
  auto noted = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (working_ > 0) {
    changed_.wait_for(lock, kLook, [&] { return working_ == 0; });
    const auto now = std::chrono::steady_clock::now();
    if (!failure_ && now - noted >= kNoteAfter) {
      noted = now;
      try {
        flush();
      } catch (const Error&) {
        failure_ = std::current_exception();
        changed_.notify_all();
      }
    }
    const std::vector<std::string> news = std::exchange(news_, {});
    const std::int64_t done = samples_done();
    lock.unlock();
    for (const std::string& text : news) hooks_.message(fmt::format("left out: {}", text));
    hooks_.progress(done);
    const bool stop = hooks_.stop();
    lock.lock();
    stopping_ = stopping_ || stop;
  }
}

void Packer::finish(PackResult& result) {
  DataFileFrame whole = frame();
  for (DataFileGroup& group : whole.groups) group.offsets = {0};
  for (std::int64_t at = 0; at < source_.size(); ++at) {
    const std::int64_t size =
        blocks_[static_cast<std::size_t>(at / kBlock)].sizes[static_cast<std::size_t>(at % kBlock)];
    if (size < 0) continue;
    DataFileGroup& group = at < plan_.training ? whole.groups.front() : whole.groups.back();
    if (whole.image.empty()) group.offsets.push_back(group.offsets.back() + size);
    group.labels.push_back(source_.label(plan_.order[static_cast<std::size_t>(at)]));
  }
  for (const DataFileGroup& group : whole.groups) {
    if (group.labels.empty()) fail("{}: all samples of {} are broken", source_.path(), group.path);
  }
  const std::string frame_path = part_ + ".frame";
  const std::int64_t start = write_frame(frame_path, whole);
  if (start != start_ || whole.bulk_bytes() != end_) {
    fail("{}: HDF5 places {} bytes of samples at {}, not {} at {}", frame_path, whole.bulk_bytes(), start, end_,
         start_);
  }
  copy_around_bulk(frame_path, start_, end_, descriptor_, part_);
  ::unlink(frame_path.c_str());
  finish_file(part_, task_.output);
  journal_.remove();
  result.training = static_cast<std::int64_t>(whole.groups.front().labels.size());
  result.validation = plan_.split ? static_cast<std::int64_t>(whole.groups.back().labels.size()) : 0;
  result.bytes = ::lseek(descriptor_, 0, SEEK_END);
  result.finished = true;
}

void Packer::remove_part() {
  ::unlink(part_.c_str());
  journal_.remove();
}

PackResult Packer::run() {
  if (journal_.differs()) {
    hooks_.message(fmt::format("{} is of other files or options: beginning anew", part_));
    ::unlink(part_.c_str());
  }
  try {
    open_part();
    check_room();
  } catch (const Error&) {
    if (blocks_.empty()) remove_part();
    throw;
  }
  const std::int64_t before = samples_done();
  working_ = task_.threads;
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(task_.threads));
  for (int i = 0; i < task_.threads; ++i) threads.emplace_back([this] { work(); });
  watch();
  threads.clear();
  if (failure_) {
    try {
      flush();
    } catch (const Error&) {  // the first failure is the one to tell
    }
    std::rethrow_exception(failure_);
  }
  flush();
  PackResult result;
  result.broken = broken_;
  result.done = samples_done();
  result.packed_here = result.done - before;
  if (static_cast<std::int64_t>(blocks_.size()) == block_count_) finish(result);
  return result;
}

}  // namespace convoy
